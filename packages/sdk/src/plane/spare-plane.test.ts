import { expect, test } from "vitest";
import { SandboxError } from "../errors/sandbox-error.ts";
import { answer, ScriptedPlane } from "../testing/scripted-plane.ts";
import { daemonPort } from "./data-plane.ts";
import { SparePlane } from "./spare-plane.ts";

const request = { method: "POST", port: daemonPort, path: "/", body: "x" };
const refused = (): never => {
  throw new SandboxError("unavailable", "connect ECONNREFUSED");
};

test("SparePlane: a way that cannot be reached is left for good", async () => {
  const first = new ScriptedPlane(refused);
  const spare = new ScriptedPlane(answer(200, {}), answer(204, {}));
  const plane = new SparePlane(first, () => spare);
  expect([(await plane.request(request)).status, (await plane.request(request)).status]).toEqual([200, 204]);
  expect(first.requests).toHaveLength(1);
});

test("SparePlane: a way that answered once is not left", async () => {
  const first = new ScriptedPlane(answer(200, {}), refused);
  const plane = new SparePlane(first, () => new ScriptedPlane());
  await plane.request(request);
  await expect(plane.request(request)).rejects.toMatchObject({ code: "unavailable" });
});

test("SparePlane: what may have been sent is not sent the other way", async () => {
  const lost = (): never => {
    throw new SandboxError("connection-lost", "reset");
  };
  const plane = new SparePlane(new ScriptedPlane(lost), () => new ScriptedPlane());
  await expect(plane.request(request)).rejects.toMatchObject({ code: "connection-lost" });
});
