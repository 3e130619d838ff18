import { ApiError } from "@agent-sandbox/api/api-error";
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

test("awaitSuspended: a node that failed is quoted at once", async () => {
  const condition = {
    type: "Suspended",
    status: "False",
    reason: "SuspensionFailed",
    message: "the disk is full",
  } as const;
  const failed = { ...sandbox, status: { conditions: [{ ...condition, lastTransitionTime: "2026-01-01T00:00:00Z" }] } };
  await expect(awaitSuspended(quietEngine(), failed, { waitTimeoutMs: 60_000 })).rejects.toMatchObject({
    code: "suspension-failed",
    message: "the disk is full",
  });
});

/** An engine whose API server goes away behind the first event, is away for some requests, and then shows another state; or was never there. */
function restartedEngine(isThereFirst: boolean): Engine {
  let watches = 0;
  const client: Partial<Client> = {
    watch: async function* () {
      watches += 1;
      if (watches === 1 && isThereFirst) yield { type: "ADDED", object: sandbox as never };
      if (watches < 3) throw new ApiError("ServiceUnavailable", "connection refused");
      const found = { ...sandbox, metadata: { ...sandbox.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
      yield { type: "ADDED", object: found as never };
    },
  };
  return { client: client as Client } as Engine;
}

test("awaitState: an API server that was there and goes away is waited for", async () => {
  const found = await awaitState(restartedEngine(true), "deleting", { ...key, waitTimeoutMs: 5_000 });
  expect(found.state).toBe("deleting");
});

test("awaitState: one that was never there is an error at once", async () => {
  const waiting = awaitState(restartedEngine(false), "deleting", { ...key, waitTimeoutMs: 5_000 });
  await expect(waiting).rejects.toMatchObject({ code: "unavailable" });
});
