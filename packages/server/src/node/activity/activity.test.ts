import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { annotationKeys, isBeingSuspended, type Sandbox } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { readUse } from "./ask-daemon.ts";
import { holdsConnection, isDialledFromHere } from "./host-connections.ts";
import { OpenStreams } from "./open-streams.ts";
import { activityToReport, checkTimeOf } from "./plan-checks.ts";

const bornMs = Date.parse("2026-03-01T10:00:00Z");
const at = (seconds: number): number => bornMs + seconds * 1000;

function sandbox(activeSeconds?: number, timeoutSeconds: number | undefined = 60): Sandbox {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: "a",
      creationTimestamp: new Date(bornMs).toISOString(),
      ...(activeSeconds !== undefined && {
        annotations: { [annotationKeys.lastActivityAt]: new Date(at(activeSeconds)).toISOString() },
      }),
    },
    spec: {
      podTemplate: { spec: { containers: [] } },
      ...(timeoutSeconds > 0 && { autoSuspension: { inactivityTimeoutSeconds: timeoutSeconds } }),
    },
  } as Sandbox;
}

test("node activity: a sandbox is looked at halfway to its sleep, then halfway again", () => {
  expect(checkTimeOf(sandbox(), undefined)).toEqual({ checkAtMs: at(30), asleepAtMs: at(60) });
  expect(checkTimeOf(sandbox(), at(30))?.checkAtMs).toBe(at(45));
  expect(checkTimeOf(sandbox(), at(45))?.checkAtMs).toBe(at(52.5));
  expect(checkTimeOf(sandbox(40), at(45))?.checkAtMs).toBe(at(70));
  expect(checkTimeOf(sandbox(undefined, 0), undefined)).toBeUndefined();
});

test("node activity: looks come no faster than four a second", () => {
  expect(checkTimeOf(sandbox(0, 1), at(0.9))?.checkAtMs).toBe(at(1.15));
});

test("node activity: what is in use now is reported as now, what was used as when it was", () => {
  const idle = { isInUse: false, lastUseMs: 0 };
  expect(activityToReport(sandbox(), idle, at(30))).toBeUndefined();
  expect(activityToReport(sandbox(), { ...idle, isInUse: true }, at(30))).toBe(at(30));
  expect(activityToReport(sandbox(), { ...idle, lastUseMs: at(12) }, at(30))).toBe(at(12));
  expect(activityToReport(sandbox(12), { ...idle, lastUseMs: at(12.5) }, at(30))).toBeUndefined();
});

test("node activity: a sandbox that claims activity in the future is believed up to now", () => {
  expect(activityToReport(sandbox(), { isInUse: false, lastUseMs: at(9_999) }, at(30))).toBe(at(30));
});

test("node activity: nothing but the right shape is believed of a daemon", () => {
  const lastActivityAt = "2026-03-01T10:00:10.123456789Z";
  expect(readUse(JSON.stringify({ liveProcesses: 1, openStreams: 0, lastActivityAt }))).toMatchObject({
    isInUse: true,
  });
  expect(readUse(JSON.stringify({ inboundConnections: 1, lastActivityAt }))).toMatchObject({ isInUse: true });
  expect(readUse(JSON.stringify({ liveProcesses: 0, openStreams: 2, lastActivityAt }))).toMatchObject({
    isInUse: true,
  });
  expect(readUse(JSON.stringify({ liveProcesses: "9", lastActivityAt }))).toEqual({
    isInUse: false,
    lastUseMs: Date.parse("2026-03-01T10:00:10.123Z"),
  });
  for (const text of ["", "null", "[]", "{}", '{"lastActivityAt":"soon"}', "<html>"])
    expect(readUse(text)).toBeUndefined();
});

test("node activity: open streams are counted per pod, and their end is remembered", () => {
  let nowMs = 1;
  const streams = new OpenStreams(() => nowMs);
  const [first, second] = [streams.begin("ns/a", () => undefined), streams.begin("ns/a", () => undefined)];
  first();
  expect(streams.of("ns/a").isOpen).toBe(true);
  nowMs = 7;
  second();
  expect(streams.of("ns/a")).toEqual({ isOpen: false, endedMs: 7 });
  streams.forget("ns/a");
  expect(streams.of("ns/a").endedMs).toBe(0);
});

test("node activity: a stream that outlives its pod is forgotten when it ends", () => {
  const streams = new OpenStreams(() => 7);
  const end = streams.begin("ns/a", () => undefined);
  streams.forget("ns/a");
  expect(streams.of("ns/a").isOpen).toBe(true);
  end();
  expect(streams.of("ns/a")).toEqual({ isOpen: false, endedMs: 0 });
});

test("node activity: what runs on in a sandbox that its user has just suspended does not wake it", () => {
  const suspended = (activeSeconds: number, suspendedSeconds?: number): Sandbox => {
    const one = sandbox(activeSeconds);
    const stamp =
      suspendedSeconds === undefined
        ? {}
        : { [annotationKeys.suspendedAt]: new Date(at(suspendedSeconds)).toISOString() };
    const metadata = { ...one.metadata, annotations: { ...one.metadata.annotations, ...stamp } };
    return { ...one, metadata, spec: { ...one.spec, operatingMode: "Suspended" } };
  };
  expect(isBeingSuspended(sandbox(5))).toBe(false);
  expect(isBeingSuspended(suspended(5))).toBe(true);
  expect(isBeingSuspended(suspended(5, 6))).toBe(true);
  expect(isBeingSuspended(suspended(7, 6))).toBe(false);
});

test("holdsConnection: another user's connection to the address counts, the engine's own and the daemon's do not", () => {
  const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
  const line = (remote: string, state: string, uid: number): string =>
    `${head}\n   3: 010A0B0A:D2F0 ${remote} ${state} 00000000:00000000 02:00000D4A 00000000 ${uid} 0 4242 2 0000000000000000\n`;
  const held = (table: string): boolean => holdsConnection(table, { address: "10.11.12.5", ownUid: 990 });
  expect(held(line("050C0B0A:1F40", "01", 0))).toBe(true);
  expect(held(line("0000000000000000FFFF0000050C0B0A:1F40", "01", 0))).toBe(true);
  expect(held(line("050C0B0A:1F40", "01", 990))).toBe(false);
  expect(held(line("050C0B0A:C2EC", "01", 0))).toBe(false);
  // Only being set up, or already at its end; and the neighbour's.
  expect(held(line("050C0B0A:1F40", "02", 0))).toBe(false);
  expect(held(line("050C0B0A:1F40", "06", 0))).toBe(false);
  expect(held(line("060C0B0A:1F40", "01", 0))).toBe(false);
  expect(held(head)).toBe(false);
});

test("isDialledFromHere: finds a real connection in the kernel's tables", async () => {
  const address = "127.11.12.5";
  const server = net.createServer().listen(0, address);
  await once(server, "listening");
  const somebodyElse = 4_000_000_000;
  expect(await isDialledFromHere(address, somebodyElse)).toBe(false);
  const socket = net.connect((server.address() as AddressInfo).port, address);
  await once(socket, "connect");
  expect(await isDialledFromHere(address, somebodyElse)).toBe(true);
  expect(await isDialledFromHere(address)).toBe(false);
  socket.destroy();
  server.close();
});

test.each([1, 2, 60])(
  "activity: a sandbox of %i s that is always in use is reported at most twice for each of them",
  (timeoutSeconds) => {
    let [known, lastCheckMs, reports] = [sandbox(undefined, timeoutSeconds), undefined as number | undefined, 0];
    for (let seconds = 0; seconds < 100 * timeoutSeconds; seconds += 0.05) {
      const due = checkTimeOf(known, lastCheckMs);
      if (due === undefined || at(seconds) < due.checkAtMs) continue;
      lastCheckMs = at(seconds);
      // A program inside may report any time of use, also one in the future.
      const atMs = activityToReport(known, { isInUse: true, lastUseMs: at(seconds + 1e6) }, at(seconds));
      if (atMs === undefined) continue;
      reports += 1;
      known = sandbox((atMs - bornMs) / 1000, timeoutSeconds);
    }
    expect(reports).toBeGreaterThan(50);
    expect(reports).toBeLessThanOrEqual(200);
  },
);
