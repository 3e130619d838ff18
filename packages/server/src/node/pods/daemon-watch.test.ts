import { FakeClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import type { CheckResult } from "../probes/probe-check.ts";
import { DaemonWatch } from "./daemon-watch.ts";

function setUp(dial: () => Promise<CheckResult>) {
  const clock = new FakeClock();
  const refuse = (): Promise<CheckResult> => Promise.reject(new Error("not dialled"));
  const accept = (): Promise<CheckResult> => Promise.resolve({ isOk: true, message: "" });
  const daemons = new DaemonWatch({ clock, dialers: { http: dial, tcp: accept, grpc: refuse } });
  const seen: string[] = [];
  const over = new AbortController();
  const watched = daemons.watch({
    hostId: "h",
    address: "10.200.0.9",
    hasSaidSo: false,
    over: over.signal,
    onAnswer: () => seen.push("answer"),
    onOverdue: () => seen.push("overdue"),
  });
  return { clock, daemons, seen, over, watched };
}

const refused = (): Promise<CheckResult> => Promise.reject(new Error("connection refused"));

test("DaemonWatch: one that never answers is overdue once and never taken for answering", async () => {
  const { clock, daemons, seen, over, watched } = setUp(refused);
  for (let second = 0; second < 40; second++) await clock.advance(1_000);
  expect(seen).toEqual(["overdue"]);
  expect(daemons.answering.has("h")).toBe(false);
  over.abort();
  await watched;
});

test("DaemonWatch: one that answers late is answering from then on", async () => {
  let isThere = false;
  const { clock, daemons, seen, watched } = setUp(() =>
    isThere ? Promise.resolve({ isOk: true, message: "" }) : refused(),
  );
  for (let second = 0; second < 15; second++) await clock.advance(1_000);
  isThere = true;
  for (let second = 0; second < 3; second++) await clock.advance(1_000);
  await watched;
  expect(seen).toEqual(["overdue", "answer"]);
  expect(daemons.answering.has("h")).toBe(true);
  daemons.forget("h");
  expect(daemons.answering.has("h")).toBe(false);
});

test("DaemonWatch: the end of the run ends the wait", async () => {
  const { daemons, seen, over, watched } = setUp(refused);
  over.abort();
  await watched;
  expect(seen).toEqual([]);
  expect(daemons.answering.size).toBe(0);
});
