import type { Transport } from "@agent-sandbox/kube/transport";
import { expect, test } from "vitest";
import { ConnectClient } from "../plane/connect-client.ts";
import { Processes } from "../process/processes.ts";
import { ExecPlane } from "./exec-plane.ts";

test("ExecPlane: a service is refused before anything runs", async () => {
  const refuse = () => Promise.reject(new Error("nothing is asked of the API"));
  const transport: Transport = { request: refuse, upgrade: refuse, close: () => Promise.resolve() };
  const findPod = () => Promise.reject(new Error("no Pod is looked for"));
  const plane = new ExecPlane({ transport, namespace: "ns", findPod, newId: () => "1" });
  const started = new Processes(new ConnectClient(plane)).startService("web", ["serve"]);
  await expect(started).rejects.toMatchObject({
    code: "unsupported",
    message: expect.stringContaining("without the daemon nothing keeps a service running") as string,
  });
});
