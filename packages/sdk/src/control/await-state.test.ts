import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import type { Client } from "@agent-sandbox/kube/client";
import { expect, test } from "vitest";
import type { Engine } from "../engine/engine.ts";
import { awaitState } from "./await-state.ts";
import { awaitSuspended } from "./await-suspended.ts";

const sandbox: Sandbox = {
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { namespace: "default", name: "box", uid: "uid-1" },
  spec: { podTemplate: { spec: { containers: [] } } },
};

/** An engine on which nothing ever happens to the sandbox. */
function quietEngine(): Engine {
  const client: Partial<Client> = {
    watch: async function* (_resource, { signal } = {}) {
      yield { type: "ADDED", object: sandbox as never };
      await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
    },
  };
  return { client: client as Client } as Engine;
}

const key = { namespace: "default", name: "box", uid: "uid-1" };

test("awaitState: a state that does not come in time is a wait-timeout", async () => {
  const waiting = awaitState(quietEngine(), "suspended", { ...key, waitTimeoutMs: 20 });
  await expect(waiting).rejects.toMatchObject({
    code: "wait-timeout",
    message: "sandbox default/box was not suspended within 20 ms; last seen: starting",
  });
});

test("awaitSuspended: a sandbox that does not fall asleep in time is a wait-timeout", async () => {
  const waiting = awaitSuspended(quietEngine(), sandbox, { waitTimeoutMs: 20 });
  await expect(waiting).rejects.toMatchObject({ code: "wait-timeout" });
});
