import { type Lease, leases, pathOf } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { createClient } from "./kube-client.ts";
import { runLeaderElection } from "./leader-election.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { type ScriptedAnswer, ScriptedTransport } from "./testing/scripted-transport.ts";

const key = { namespace: "system", name: "controllers" };
const path = pathOf(leases, key);

function lease(holderIdentity: string, leaseTransitions = 0): ScriptedAnswer {
  const body: Lease = {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { ...key, resourceVersion: "7" },
    spec: { holderIdentity, leaseDurationSeconds: 15, leaseTransitions, renewTime: "2026-01-01T00:00:00.000000Z" },
  };
  return { body };
}

const missing = { status: 404, body: { kind: "Status", reason: "NotFound", code: 404 } };
const down = { status: 503, body: { kind: "Status", code: 503, message: "down" } };
const beaten = { status: 409, body: { kind: "Status", reason: "Conflict", code: 409 } };

function stand(answers: readonly ScriptedAnswer[]) {
  const clock = new FakeClock();
  const transport = new ScriptedTransport(answers);
  const log: string[] = [];
  const stop = new AbortController();
  const running = runLeaderElection({
    client: createClient(transport),
    clock,
    ...key,
    identity: "me",
    random: () => 0,
    signal: stop.signal,
    lead: async (signal) => {
      log.push("leads");
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      log.push(`ends: ${String((signal.reason as Error).message)}`);
    },
  });
  const asked = (): string[] =>
    transport.requests.map(({ method, path: of }) => `${method} ${of.replace(path, "lease")}`);
  const holder = (index: number): unknown => {
    const body = JSON.parse(String(transport.requests[index]?.body)) as Lease;
    return body.spec?.holderIdentity;
  };
  return { clock, log, asked, holder, stop: () => (stop.abort(new Error("stopped")), running) };
}

test("runLeaderElection: no lease: creates it and leads, and releases it when stopped", async () => {
  const { clock, log, asked, holder, stop } = stand([missing, lease("me"), lease("me")]);
  await clock.settled();
  expect(log).toEqual(["leads"]);
  await stop();
  expect(log).toEqual(["leads", "ends: stopped"]);
  expect(asked().at(-1)).toBe("PUT lease");
  expect(holder(2)).toBe("");
});

test("runLeaderElection: another holds the lease: waits, and takes over when it was not renewed for its duration", async () => {
  const held = Array.from({ length: 8 }, () => lease("other"));
  const { clock, log, stop } = stand([...held, lease("other"), lease("me", 1), lease("me")]);
  await clock.advance(13_999);
  expect(log).toEqual([]);
  await clock.advance(2_001);
  expect(log).toEqual(["leads"]);
  await stop();
});

test("runLeaderElection: a lease that was released: is taken at once", async () => {
  const { clock, log, stop } = stand([lease(""), lease("me"), lease("me")]);
  await clock.settled();
  expect(log).toEqual(["leads"]);
  await stop();
});

test("runLeaderElection: another was quicker: does not lead", async () => {
  const { clock, log, stop } = stand([lease(""), beaten]);
  await clock.settled();
  expect(log).toEqual([]);
  await stop();
});

test("runLeaderElection: a leader: renews every two seconds", async () => {
  const renewals = Array.from({ length: 20 }, () => lease("me"));
  const { clock, log, asked, stop } = stand([missing, ...renewals]);
  await clock.advance(6_000);
  expect(asked().filter((request) => request === "PUT lease")).toHaveLength(3);
  expect(log).toEqual(["leads"]);
  await stop();
});

test("runLeaderElection: a leader that cannot renew: stops leading within ten seconds", async () => {
  const failures = Array.from({ length: 20 }, () => down);
  const { clock, log, stop } = stand([missing, lease("me"), ...failures]);
  await clock.advance(9_999);
  expect(log).toEqual(["leads"]);
  await clock.advance(1);
  expect(log).toEqual(["leads", "ends: the lease could not be renewed"]);
  await stop();
});

test("runLeaderElection: a leader whose lease was taken: stops leading at once", async () => {
  const { clock, log, stop } = stand([missing, lease("me"), lease("other")]);
  await clock.advance(2_000);
  expect(log).toEqual(["leads", "ends: another holds the lease"]);
  await stop();
});
