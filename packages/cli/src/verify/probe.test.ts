import type { Engine } from "@agent-sandbox/sdk";
import { expect, test } from "vitest";
import { isOverDisk, type Outcome, type Place } from "./attempt.ts";
import type { Ground, Mark } from "./ground.ts";
import { type Finding, isSound, judge, notApplicable, type Trial } from "./probe.ts";
import { probes } from "./probes/probes.ts";
import { formatReport, reportOf } from "./report.ts";
import { runProbes } from "./run-probes.ts";

const probe = { id: "area/name", tries: "try it" };
const through: Outcome = { through: true, detail: "reached" };
const refused: Outcome = { through: false, detail: "refused" };
const unknown: Outcome = { through: false, detail: "cut short", unknown: true };

test.each<[string, readonly Outcome[], readonly Outcome[], Finding["result"], Finding["control"]]>([
  ["all refused, all controls through", [refused, refused], [through], "held", "worked"],
  ["one through", [refused, through], [through], "broken", "worked"],
  ["a control that failed", [refused], [through, refused], "held", "failed"],
  ["through, though a control failed", [through], [refused], "broken", "failed"],
  ["an attempt that was cut short", [refused, unknown], [through], "held", "failed"],
  ["no control at all", [refused], [], "held", "failed"],
  ["nothing tried", [], [through], "held", "failed"],
])("judge: %s", (_title, attempts, controls, result, control) => {
  expect(judge(probe, { attempts, controls })).toMatchObject({ id: "area/name", result, control });
});

test("isSound: one finding that is broken or unproven is enough, and nothing tried is not sound", () => {
  const held = judge(probe, { attempts: [refused], controls: [through] });
  const broken = judge(probe, { attempts: [through], controls: [through] });
  const unproven = judge(probe, { attempts: [refused], controls: [refused] });
  const absent = notApplicable(probe, "why");
  expect(isSound([held, absent])).toBe(true);
  for (const findings of [[held, broken], [held, unproven], [absent], []]) expect(isSound(findings)).toBe(false);
});

const places: readonly Place[] = ["host", "prisoner", "neighbour", "confined"];
const marks = Object.fromEntries(places.map((place, key) => [place, { name: place, key }])) as Record<Place, Mark>;

/** Enough to plan with; nothing is reached. */
function groundWith(fields: Partial<Ground>): Ground {
  return {
    engine: {} as Engine,
    namespace: "n",
    isOwn: true,
    image: undefined,
    marks,
    port: 20_000,
    addresses: { prisoner: "10.0.0.1", neighbour: "10.0.0.2", confined: "10.0.0.3" },
    nodeKernel: "6.0",
    kubelets: [],
    limits: { memoryBytes: 1024, diskBytes: 1024 },
    runtimes: {},
    tryAt: async (_place, attempts) => attempts.map(() => through),
    ...fields,
  };
}

const whole = groundWith({
  kubelets: [{ address: "10.0.0.9", port: 10_250 }],
  host: {
    dataDir: "/var/lib/agent-sandbox",
    kernel: "6.0",
    namespaces: { pid: "pid:[1]" },
    services: [{ address: "10.0.0.9", port: 20_001 }],
    engine: [],
    sockets: ["/run/host.sock"],
  },
  outside: {
    public: "203.0.113.10",
    metadata: ["169.254.169.254"],
    private: ["10.9.9.9"],
    ipv6: ["fd00::1"],
    noted: () => [],
  },
});

function trialsOf(ground: Ground): { readonly id: string; readonly trial: Trial }[] {
  return probes.flatMap((one) => {
    const trial = "plan" in one ? one.plan(ground) : "";
    return typeof trial === "string" ? [] : [{ id: one.id, trial }];
  });
}

test("probes: every way that is tried has a control by the same way, and every place one at the same place", () => {
  const trials = trialsOf(whole);
  expect(trials.length).toBeGreaterThan(25);
  for (const { id, trial } of trials)
    for (const attempt of trial.attempts) {
      expect([id, trial.controls.some((control) => control.do === attempt.do)]).toEqual([id, true]);
      expect([id, trial.controls.some((control) => control.at === attempt.at)]).toEqual([id, true]);
    }
});

test("probes: each has an id of its own, and without the machine each still plans or says why not", () => {
  expect(new Set(probes.map(({ id }) => id)).size).toBe(probes.length);
  for (const one of probes) if ("plan" in one) expect(one.plan(groundWith({}))).not.toBe("");
  for (const { trial } of trialsOf(groundWith({})))
    for (const { at } of [...trial.attempts, ...trial.controls]) expect(at).not.toBe("host");
});

test("probes: without the machine no packet is sent but to sandboxes and the cluster's own addresses", () => {
  const own = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9"];
  const remote = groundWith({ kubelets: [{ address: "10.0.0.9", port: 10_250 }] });
  for (const { trial } of trialsOf(remote))
    for (const { address } of [...trial.attempts, ...trial.controls])
      if (address !== undefined) expect(own).toContain(address);
});

test.each<[string, number, Outcome, boolean]>([
  ["wrote more than its limit", 101, through, true],
  ["was refused more than its limit", 101, refused, false],
  ["wrote less than its limit", 99, through, false],
])("isOverDisk: a sandbox that %s", (_title, number, outcome, isOver) => {
  expect(isOverDisk([{ at: "confined", do: "disk", path: "/", number }], [outcome], 100)).toBe(isOver);
});

test("limits/memory: on a cluster what is written to /tmp is written to a disk, and not tried as memory", () => {
  const pathsTried = (isOwn: boolean): (string | undefined)[] =>
    trialsOf(groundWith({ isOwn }))
      .filter(({ id }) => id === "limits/memory")
      .flatMap(({ trial }) => trial.attempts.map(({ path }) => path));
  expect(pathsTried(true)).toEqual([undefined, "/tmp", "/dev/shm"]);
  expect(pathsTried(false)).toEqual([undefined, "/dev/shm"]);
});

/** A cluster's API that takes or refuses every Pod it is asked about. */
function clusterGround(fields: Partial<Ground>, takesPods: boolean): Ground {
  const create = (): Promise<object> => (takesPods ? Promise.resolve({}) : Promise.reject(new Error("no such class")));
  return groundWith({ isOwn: false, engine: { client: { create } } as unknown as Engine, ...fields });
}

test.each<[string, string, Ground, Finding["result"]]>([
  ["kernel/own: a node that cannot be read", "kernel/own", groundWith({ nodeKernel: undefined }), "not-applicable"],
  ["admission/runc: no class of that name", "admission/runc", clusterGround({}, false), "not-applicable"],
  ["admission/runc: a class of that name", "admission/runc", clusterGround({}, true), "broken"],
  [
    "runtime/advisories: a good containerd over a runtime unknown",
    "runtime/advisories",
    groundWith({ runtimes: { containerd: "2.2.9" } }),
    "not-applicable",
  ],
  [
    "runtime/advisories: a bad containerd over a runtime unknown",
    "runtime/advisories",
    groundWith({ runtimes: { containerd: "1.4.0" } }),
    "broken",
  ],
])("a cluster does not pass what its API does not tell: %s", async (_title, id, ground, result) => {
  const [finding] = await runProbes(
    probes.filter((one) => one.id === id),
    ground,
    { signal: AbortSignal.timeout(10_000), onProgress: () => undefined },
  );
  expect(finding).toMatchObject({ id, result });
});

test("runProbes: a forged packet came through only if it arrived", async () => {
  const signal = AbortSignal.timeout(10_000);
  const forged = probes.filter(({ id }) => id === "egress/forged-sender");
  const run = (noted: readonly string[]): Promise<Finding[]> => {
    const outside = { ...(whole.outside as NonNullable<Ground["outside"]>), noted: () => noted };
    return runProbes(forged, { ...whole, outside }, { signal, onProgress: () => undefined });
  };
  expect(await run(["prisoner-own"])).toMatchObject([{ result: "held", control: "worked" }]);
  expect(await run([])).toMatchObject([{ result: "held", control: "failed" }]);
  expect(await run(["prisoner-own", "prisoner-stranger"])).toMatchObject([{ result: "broken" }]);
});

test("runProbes: a place that gives no answer leaves everything tried there unproven", async () => {
  const silent = { ...whole, tryAt: async () => [] };
  const planned = probes.filter((one) => "plan" in one);
  const findings = await runProbes(planned, silent, {
    signal: AbortSignal.timeout(10_000),
    onProgress: () => undefined,
  });
  expect(findings.map(({ control }) => control)).toEqual(planned.map(() => "failed"));
});

test("formatReport: what a sandbox says cannot steer the terminal", () => {
  const steering = { through: true, detail: "a\x1b[2Jb\rc\u009bd" };
  const report = reportOf([judge(probe, { attempts: [steering], controls: [through] })], {
    startedMs: 0,
    endedMs: 0,
    versions: { agentSandbox: "1.0", engine: "v1", kernel: "6.0", node: "v24", runtimes: {} },
  });
  const text = formatReport(report, { stdout: process.stdout, env: { NO_COLOR: "1" } });
  expect(text).toContain("a [2Jb c d");
  expect(text.replaceAll("\n", "")).not.toMatch(/\p{Cc}/u);
});

test("formatReport: a line for each finding and one that counts them", () => {
  const findings = [
    judge(probe, { attempts: [refused], controls: [through] }),
    judge({ ...probe, id: "area/other" }, { attempts: [through], controls: [through] }),
    notApplicable({ ...probe, id: "area/third" }, "not here"),
  ];
  const versions = { agentSandbox: "1.0", engine: "v1", kernel: "6.0", node: "v24", runtimes: { runsc: "2026" } };
  const report = reportOf(findings, { startedMs: 0, endedMs: 1500, versions });
  expect(report.sound).toBe(false);
  expect(
    formatReport(report, { stdout: process.stdout, env: { NO_COLOR: "1" } }),
  ).toBe(`held    area/name   control worked  try it
BROKEN  area/other  control worked  try it: reached
n/a     area/third  control none    try it: not here

NOT SOUND: 1 held, 1 broken, 1 not applicable, 0 without a working control in 1.5 s
agent-sandbox 1.0, runsc 2026, Linux 6.0, Node v24
`);
});
