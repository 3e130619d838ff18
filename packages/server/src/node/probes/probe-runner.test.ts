import type { Container, Probe } from "@agent-sandbox/api";
import { FakeClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import type { CheckResult } from "./probe-check.ts";
import { ProbeRunner } from "./probe-runner.ts";

const probe: Probe = { exec: { command: ["check"] }, periodSeconds: 10, failureThreshold: 2 };

/** A container whose probe command gives the exit codes in turn; the last one stays. */
function setUp(container: Partial<Container>, codes: number[]) {
  const clock = new FakeClock();
  const failures: string[] = [];
  let changes = 0;
  const next = (): number => (codes.length > 1 ? (codes.shift() ?? 0) : (codes[0] ?? 0));
  const refuse = (): Promise<CheckResult> => Promise.reject(new Error("not dialled"));
  const runner = new ProbeRunner({
    container: { name: "main", ...container },
    target: { address: "10.200.0.9", ports: new Map(), exec: async () => ({ exitCode: next(), output: "said" }) },
    dialers: { http: refuse, tcp: refuse, grpc: refuse },
    clock,
    onChange: () => {
      changes += 1;
    },
    onFailure: (name, { message }) => failures.push(`${name}: ${message}`),
  });
  runner.start();
  return { runner, clock, failures, changes: () => changes };
}

test("ProbeRunner: a container without probes is started and ready", () => {
  expect(setUp({}, [0]).runner.verdict()).toEqual({ isStarted: true, isReady: true });
});

test("ProbeRunner: readiness comes with the first success and goes after enough failures", async () => {
  const { runner, clock, failures } = setUp({ readinessProbe: probe }, [1, 0, 1, 1]);
  await clock.advance(0);
  expect(runner.verdict().isReady).toBe(false);
  await clock.advance(10_000);
  expect(runner.verdict().isReady).toBe(true);
  await clock.advance(10_000);
  expect(runner.verdict().isReady).toBe(true);
  await clock.advance(10_000);
  expect(runner.verdict().isReady).toBe(false);
  expect(failures).toEqual(["readiness: said", "readiness: said", "readiness: said"]);
  runner.stop();
});

test("ProbeRunner: liveness fails only after its threshold, and names its grace", async () => {
  const { runner, clock } = setUp({ livenessProbe: { ...probe, terminationGracePeriodSeconds: 3 } }, [1]);
  await clock.advance(0);
  expect(runner.verdict().failure).toBeUndefined();
  await clock.advance(10_000);
  expect(runner.verdict().failure).toEqual({ probe: "liveness", graceMs: 3_000 });
  runner.stop();
});

test("ProbeRunner: the startup probe holds the others back and runs no more once it passed", async () => {
  const { runner, clock } = setUp({ startupProbe: probe, livenessProbe: probe }, [1, 0, 0]);
  await clock.advance(0);
  expect(runner.verdict().isStarted).toBe(false);
  await clock.advance(10_000);
  expect(runner.verdict()).toEqual({ isStarted: true, isReady: true });
  runner.stop();
  expect(clock.timers).toBe(0);
});
