import type { Pod, PodSpec } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { ContainerState } from "../host/container.ts";
import type { ImageState } from "../images/image-state.ts";
import type { ProbeVerdict } from "../probes/probe-verdict.ts";
import type { ObservedPod, PodStep } from "./observed-pod.ts";
import { planPod } from "./plan-pod.ts";
import type { ContainerRecord, PodRecord, RunEnd } from "./pod-record.ts";

const nowMs = Date.parse("2026-03-01T10:00:00Z");
const process = { argv: ["x"], env: [], cwd: "/", uid: 0, gid: 0, capabilities: [], noNewPrivileges: false };
const ready: ImageState = {
  kind: "ready",
  image: {
    id: "sha256:1",
    reference: "r@1",
    isHostUsr: true,
    sizeBytes: 0,
    config: { entrypoint: [], cmd: [], env: [], user: "", workingDir: "" },
  },
};

function podOf(spec: Partial<PodSpec> = {}, overrides: Partial<Pod> = {}): Pod {
  const metadata = { name: "p", namespace: "default", uid: "u", ...overrides.metadata };
  return {
    apiVersion: "v1",
    kind: "Pod",
    ...overrides,
    metadata,
    spec: { containers: [{ name: "main", image: "host" }], ...spec },
  };
}

function run(name: string, overrides: Partial<ContainerRecord> = {}): ContainerRecord {
  return {
    name,
    attempt: 0,
    hostId: `id-${name}`,
    rootfsId: "r",
    imageId: "i",
    image: "host",
    process,
    crashes: 0,
    startedAt: "2026-03-01T09:59:00Z",
    ...overrides,
  };
}

function end(exitCode: number, overrides: Partial<RunEnd> = {}): RunEnd {
  return {
    exitCode,
    reason: exitCode === 0 ? "Completed" : "Error",
    finishedAt: "2026-03-01T10:00:00Z",
    startedAt: "2026-03-01T09:59:00Z",
    hostId: "h",
    ...overrides,
  };
}

function recordOf(runs: readonly ContainerRecord[], overrides: Partial<PodRecord> = {}): PodRecord {
  return {
    version: 1,
    uid: "u",
    namespace: "default",
    name: "p",
    runtime: "runsc",
    slot: 1,
    address: "10.200.0.9",
    isPrepared: true,
    cgroup: "u",
    volumes: [],
    emptyDirs: [],
    files: [],
    containers: Object.fromEntries(runs.map((one) => [one.name, one])),
    startedAt: "2026-03-01T09:58:00Z",
    ...overrides,
  };
}

function observe(pod: Pod, record: PodRecord | undefined, overrides: Partial<ObservedPod> = {}): ObservedPod {
  const all = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
  const live = Object.values(record?.containers ?? {}).filter((one) => one.end === undefined);
  const runtime = new Map<string, ContainerState>(
    live.map(({ hostId }) => [
      hostId,
      { id: hostId, runtime: "runsc", sandboxId: hostId, status: "running", pid: 1, startedAt: "2026-03-01T09:59:00Z" },
    ]),
  );
  return {
    pod,
    record,
    runtime,
    images: new Map(all.map(({ name }) => [name, ready])),
    probes: new Map(),
    daemons: new Set(live.map(({ hostId }) => hostId)),
    configObstacles: new Map(),
    sleep: { wish: undefined, state: { isFrozen: false } },
    nodeAddress: "127.0.0.1",
    nowMs,
    ...overrides,
  };
}

function stepsOf(observed: ObservedPod): string[] {
  return planPod(observed).steps.map((step: PodStep) =>
    "container" in step ? `${step.do} ${step.container}` : step.do,
  );
}

const deleted = {
  metadata: {
    name: "p",
    namespace: "default",
    uid: "u",
    deletionTimestamp: "2026-03-01T10:00:30Z",
    deletionGracePeriodSeconds: 30,
  },
};
const init = { initContainers: [{ name: "setup", image: "host" }] };
const sidecar = { initContainers: [{ name: "proxy", image: "host", restartPolicy: "Always" }] };

test.each<[string, ObservedPod, string[]]>([
  [
    "a fresh pod: pulls and prepares at once",
    observe(podOf(), undefined, { images: new Map() }),
    ["pull-image main", "prepare"],
  ],
  [
    "an image under way: waits for it",
    observe(podOf(), recordOf([]), { images: new Map([["main", { kind: "pulling" }]]) }),
    [],
  ],
  ["prepared with its image: starts", observe(podOf(), recordOf([])), ["start-container main"]],
  [
    "a missing volume: does not prepare",
    observe(podOf(), undefined, { podObstacle: { reason: "FailedMount", message: "x" } }),
    [],
  ],
  [
    "a missing secret: does not start",
    observe(podOf(), recordOf([]), {
      configObstacles: new Map([["main", { reason: "CreateContainerConfigError", message: "x" }]]),
    }),
    [],
  ],
  ["running: does nothing", observe(podOf(), recordOf([run("main")])), []],
  [
    "a container the runtime lost: notes its end first",
    observe(podOf(), recordOf([run("main")]), { runtime: new Map() }),
    ["note-end main"],
  ],
  [
    "ended once: restarts at once",
    observe(podOf(), recordOf([run("main", { end: end(1), crashes: 1 })])),
    ["start-container main"],
  ],
  ["ended twice: waits", observe(podOf(), recordOf([run("main", { end: end(1), crashes: 2 })])), []],
  [
    "ended under Never: tears down",
    observe(podOf({ restartPolicy: "Never" }), recordOf([run("main", { end: end(1) })])),
    ["teardown"],
  ],
  [
    "ended well under OnFailure: tears down",
    observe(podOf({ restartPolicy: "OnFailure" }), recordOf([run("main", { end: end(0) })])),
    ["teardown"],
  ],
  [
    "failed under OnFailure: restarts",
    observe(podOf({ restartPolicy: "OnFailure" }), recordOf([run("main", { end: end(2), crashes: 1 })])),
    ["start-container main"],
  ],
  ["an init container: goes first", observe(podOf(init), recordOf([])), ["start-container setup"]],
  ["an init container that runs: holds the others", observe(podOf(init), recordOf([run("setup")])), []],
  [
    "an init container that succeeded: lets the others go",
    observe(podOf(init), recordOf([run("setup", { end: end(0) })])),
    ["start-container main"],
  ],
  [
    "an init container that failed: is tried again",
    observe(podOf(init), recordOf([run("setup", { end: end(1), crashes: 1 })])),
    ["start-container setup"],
  ],
  [
    "an init container that failed under Never: ends the pod",
    observe(podOf({ ...init, restartPolicy: "Never" }), recordOf([run("setup", { end: end(1) })])),
    ["teardown"],
  ],
  [
    "a sidecar that runs: lets the others go",
    observe(podOf(sidecar), recordOf([run("proxy")])),
    ["start-container main"],
  ],
  [
    "a sidecar that ended: is restarted beside the others",
    observe(podOf(sidecar), recordOf([run("proxy", { end: end(0), crashes: 1 }), run("main")])),
    ["start-container proxy"],
  ],
  [
    "ended while the agent was away: asks for its image again",
    observe(podOf(), recordOf([run("main", { end: end(1), crashes: 1 })]), { images: new Map() }),
    ["pull-image main"],
  ],
  ["a refused pod: nothing", observe(podOf(), undefined, { refusal: { reason: "R", message: "m" } }), []],
  ["deleted while running: stops", observe(podOf({}, deleted), recordOf([run("main")])), ["stop-container main"]],
  [
    "deleted with a sidecar: stops the main container first",
    observe(podOf(sidecar, deleted), recordOf([run("proxy"), run("main")])),
    ["stop-container main"],
  ],
  [
    "deleted, main ended: stops the sidecar",
    observe(podOf(sidecar, deleted), recordOf([run("proxy"), run("main", { end: end(0) })])),
    ["stop-container proxy"],
  ],
  [
    "being stopped within its grace: waits",
    observe(
      podOf({}, deleted),
      recordOf([run("main", { stopping: { sinceMs: nowMs - 1000, graceMs: 30_000, reason: "r" } })]),
    ),
    [],
  ],
  [
    "its grace is over: kills",
    observe(
      podOf({}, deleted),
      recordOf([run("main", { stopping: { sinceMs: nowMs - 30_000, graceMs: 30_000, reason: "r" } })]),
    ),
    ["kill-container main"],
  ],
  [
    "killed already: waits for its end",
    observe(
      podOf({}, deleted),
      recordOf([run("main", { stopping: { sinceMs: nowMs - 30_000, graceMs: 30_000, reason: "r", killed: true } })]),
    ),
    [],
  ],
  [
    "deleted and stopped: tears down",
    observe(podOf({}, deleted), recordOf([run("main", { end: end(0) })])),
    ["teardown"],
  ],
  [
    "deleted and torn down: forgets",
    observe(
      podOf({}, deleted),
      (({ slot: _slot, ...rest }) => ({ ...rest, isPrepared: false }))(recordOf([run("main", { end: end(0) })])),
    ),
    ["forget"],
  ],
  [
    "deleted and ended: forgets before it gives its slot back",
    observe(podOf({}, deleted), recordOf([run("main", { end: end(0) })], { isPrepared: false })),
    ["forget"],
  ],
  [
    "done and torn down: gives its slot back",
    observe(
      podOf({ restartPolicy: "Never" }),
      recordOf([run("main", { end: end(0) })], { isPrepared: false, roots: ["r"] }),
    ),
    ["release"],
  ],
  ["deleted before it began: forgets", observe(podOf({}, deleted), undefined), ["forget"]],
])("planPod: %s", (_title, observed, expected) => {
  expect(stepsOf(observed)).toEqual(expected);
});

test("planPod: the wait after the second crash is ten seconds", () => {
  expect(planPod(observe(podOf(), recordOf([run("main", { end: end(1), crashes: 2 })]))).requeueAfterMs).toBe(10_000);
});

test("planPod: a pod past its deadline fails and is stopped", () => {
  const observed = observe(podOf({ activeDeadlineSeconds: 60 }), recordOf([run("main")]));
  const plan = planPod(observed);
  expect(plan.status).toMatchObject({ phase: "Failed", reason: "DeadlineExceeded" });
  expect(stepsOf(observed)).toEqual(["stop-container main"]);
});

test("planPod: a container that its pod's deadline came before is terminated, not waiting for ever", () => {
  const plan = planPod(observe(podOf({ activeDeadlineSeconds: 60 }), recordOf([])));
  expect(plan.status).toMatchObject({ phase: "Failed", reason: "DeadlineExceeded" });
  expect(plan.status.containerStatuses?.map(({ state }) => state?.terminated)).toEqual([
    expect.objectContaining({ exitCode: 137, reason: "ContainerStatusUnknown" }),
  ]);
});

test("planPod: a container that its pod's deadline caught behind an init container stays PodInitializing", () => {
  const pod = podOf({ activeDeadlineSeconds: 60, initContainers: [{ name: "first", image: "i" }] });
  expect(planPod(observe(pod, recordOf([]))).status.containerStatuses?.map(({ state }) => state)).toEqual([
    { waiting: { reason: "PodInitializing" } },
  ]);
});

test("planPod: a failed liveness probe stops the container with the probe's own grace", () => {
  const verdict: ProbeVerdict = { isStarted: true, isReady: false, failure: { probe: "liveness", graceMs: 5_000 } };
  const plan = planPod(observe(podOf(), recordOf([run("main")]), { probes: new Map([["main", verdict]]) }));
  expect(plan.steps).toEqual([
    { do: "stop-container", container: "main", graceMs: 5_000, reason: "liveness probe failed" },
  ]);
});

test.each<[string, ObservedPod, Partial<NonNullable<Pod["status"]>>]>([
  [
    "nothing started: Pending and ContainerCreating",
    observe(podOf(), undefined),
    {
      phase: "Pending",
      containerStatuses: [expect.objectContaining({ state: { waiting: { reason: "ContainerCreating" } } })],
    },
  ],
  [
    "behind an init container: PodInitializing",
    observe(podOf(init), recordOf([])),
    {
      phase: "Pending",
      containerStatuses: [expect.objectContaining({ state: { waiting: { reason: "PodInitializing" } } })],
    },
  ],
  [
    "running: Running with its address",
    observe(podOf(), recordOf([run("main")])),
    { phase: "Running", podIP: "10.200.0.9" },
  ],
  [
    "refused: Failed with the reason",
    observe(podOf(), undefined, { refusal: { reason: "R", message: "m" } }),
    { phase: "Failed", reason: "R", message: "m" },
  ],
  [
    "all ended well: Succeeded",
    observe(podOf({ restartPolicy: "Never" }), recordOf([run("main", { end: end(0) })])),
    { phase: "Succeeded" },
  ],
  [
    "one ended badly: Failed",
    observe(podOf({ restartPolicy: "Never" }), recordOf([run("main", { end: end(9) })])),
    { phase: "Failed" },
  ],
])("podStatus: %s", (_title, observed, expected) => {
  expect(planPod(observed).status).toMatchObject(expected);
});

test("podStatus: readiness follows the probe and keeps the time of its last change", () => {
  const probed = podOf({
    containers: [{ name: "main", image: "host", readinessProbe: { exec: { command: ["true"] } } }],
  });
  const unready = planPod(observe(probed, recordOf([run("main")]))).status;
  const conditionOf = (status: typeof unready) => status.conditions?.find(({ type }) => type === "Ready");
  expect(conditionOf(unready)).toMatchObject({
    status: "False",
    reason: "ContainersNotReady",
    message: "containers with unready status: [main]",
  });
  const later = { nowMs: nowMs + 60_000, probes: new Map([["main", { isStarted: true, isReady: false }]]) };
  expect(
    conditionOf(planPod(observe({ ...probed, status: unready }, recordOf([run("main")]), later)).status)
      ?.lastTransitionTime,
  ).toBe(conditionOf(unready)?.lastTransitionTime);
  const now = planPod(
    observe({ ...probed, status: unready }, recordOf([run("main")]), {
      ...later,
      probes: new Map([["main", { isStarted: true, isReady: true }]]),
    }),
  ).status;
  expect(conditionOf(now)).toMatchObject({ status: "True", lastTransitionTime: "2026-03-01T10:01:00Z" });
});

test("podStatus: equal observations give equal statuses", () => {
  const observed = observe(podOf(), recordOf([run("main")]));
  const first = planPod(observed).status;
  expect(planPod({ ...observed, pod: { ...observed.pod, status: first }, nowMs: nowMs + 5_000 }).status).toEqual(first);
});

test("planPod: a container whose daemon has not answered is not ready", () => {
  const { status } = planPod(observe(podOf(), recordOf([run("main")]), { daemons: new Set() }));
  expect(status.containerStatuses?.[0]?.ready).toBe(false);
  expect(planPod(observe(podOf(), recordOf([run("main")]))).status.containerStatuses?.[0]?.ready).toBe(true);
});
