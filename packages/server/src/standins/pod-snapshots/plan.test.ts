import type {
  Condition,
  Pod,
  PodSnapshot,
  PodSnapshotManualTrigger,
  PodSnapshotPolicy,
  Sandbox,
  SandboxSnapshot,
} from "@agent-sandbox/api";
import { annotationKeys, controllerReference, podSnapshots } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planPodSnapshot, type SnapshotAction, type SnapshotObserved } from "./plan.ts";
import { type PolicyObserved, planPolicy } from "./plan-policy.ts";

const namespace = "n";
const condition = (type: string, status: "True" | "False", reason: string): Condition => ({
  type,
  status,
  reason,
  message: `words of ${reason}`,
  lastTransitionTime: "2026-01-01T00:00:00Z",
});

const trigger = (conditions?: Condition[], made = false): PodSnapshotManualTrigger => ({
  apiVersion: "podsnapshot.gke.io/v1",
  kind: "PodSnapshotManualTrigger",
  metadata: { name: "point", namespace, uid: "trigger-uid" },
  spec: { targetPod: "box" },
  ...(conditions !== undefined && {
    status: { conditions, ...(made && { snapshotCreated: { name: "point" } }) },
  }),
});
const snapshot = (parts: Partial<PodSnapshot["metadata"]> = {}, status?: PodSnapshot["status"]): PodSnapshot => ({
  apiVersion: "podsnapshot.gke.io/v1",
  kind: "PodSnapshot",
  metadata: {
    name: "point",
    namespace,
    uid: "snapshot-uid",
    annotations: { [annotationKeys.triggeredBy]: "trigger-uid" },
    ...parts,
  },
  spec: { sandboxName: "box" },
  ...(status !== undefined && { status }),
});
const saved = (reason: string, owner: PodSnapshot | undefined = snapshot()): SandboxSnapshot => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxSnapshot",
  metadata: {
    name: "point",
    namespace,
    uid: "saved-uid",
    ...(owner !== undefined && { ownerReferences: [controllerReference(podSnapshots, owner)] }),
  },
  spec: { sandboxName: "box" },
  status: {
    nodeName: "node-1",
    sandboxUID: "box-uid",
    conditions: [condition("Ready", reason === "SnapshotReady" ? "True" : "False", reason)],
  },
});
const sandbox = (annotations: Record<string, string> = {}): Sandbox => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name: "box", namespace, uid: "box-uid", annotations },
  spec: { podTemplate: { metadata: { labels: { app: "a" } }, spec: { containers: [] } } },
});
const pod: Pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "box", namespace }, spec: { containers: [] } };
const target = { kind: "sandbox", sandbox: sandbox(), pod } as const;

/** What each action does and, where it reports, the status and reason of its condition. */
function plan(parts: Partial<SnapshotObserved>): string[] {
  const empty = { trigger: undefined, snapshot: undefined, saved: undefined, target: undefined, nowMs: 0 };
  return planPodSnapshot({ ...empty, ...parts }).map(summary);
}

function summary(action: SnapshotAction): string {
  if (action.do !== "report-trigger" && action.do !== "report-snapshot") return action.do;
  const [first] = action.status.conditions ?? [];
  return `${action.do} ${first?.status} ${first?.reason}`;
}

const complete = [condition("Triggered", "True", "Complete")];
test.each<[string, Partial<SnapshotObserved>, string[]]>([
  ["a trigger of a Sandbox's Pod: makes the PodSnapshot", { trigger: trigger(), target }, ["create-snapshot"]],
  [
    "a trigger of no such Pod: fails",
    { trigger: trigger(), target: { kind: "problem", message: "no" } },
    ["report-trigger False Failed"],
  ],
  [
    "a PodSnapshot without a SandboxSnapshot: makes one",
    { trigger: trigger(), snapshot: snapshot(), target },
    ["create-saved", "report-trigger False Saving"],
  ],
  [
    "it is being saved",
    { trigger: trigger(), snapshot: snapshot(), saved: saved("SnapshotSaving") },
    ["report-snapshot False SnapshotSaving", "report-trigger False Saving"],
  ],
  [
    "it is ready",
    { trigger: trigger(), snapshot: snapshot(), saved: saved("SnapshotReady") },
    ["report-snapshot True SnapshotReady", "report-trigger True Complete"],
  ],
  [
    "it failed",
    { trigger: trigger(), snapshot: snapshot(), saved: saved("SnapshotFailed") },
    ["report-snapshot False SnapshotFailed", "report-trigger False Failed"],
  ],
  [
    "complete, and the PodSnapshot was deleted: nothing is made again",
    { trigger: trigger(complete, true), target },
    [],
  ],
  [
    "deleted before it was complete",
    { trigger: trigger([condition("Triggered", "False", "Saving")], true), target },
    ["report-trigger False Failed"],
  ],
  [
    "a PodSnapshot of another trigger is left alone",
    { trigger: trigger(), snapshot: snapshot({ annotations: {} }), saved: saved("SnapshotReady") },
    ["report-snapshot True SnapshotReady", "report-trigger False Failed"],
  ],
  [
    "a SandboxSnapshot of a user is left alone",
    { trigger: trigger(), snapshot: snapshot(), saved: saved("SnapshotReady", snapshot({ uid: "earlier" })) },
    ["report-snapshot False NameTaken", "report-trigger False Failed"],
  ],
  [
    "the SandboxSnapshot was deleted: it goes too",
    { snapshot: snapshot({}, { snapshotUID: "saved-uid" }) },
    ["delete-snapshot"],
  ],
  [
    "another has taken the name of its SandboxSnapshot: it goes too",
    { snapshot: snapshot({}, { snapshotUID: "earlier" }), saved: saved("SnapshotReady") },
    ["delete-snapshot"],
  ],
  ["it is being deleted: nothing", { snapshot: snapshot({ deletionTimestamp: "2026-01-01T00:00:00Z" }) }, []],
])("planPodSnapshot: %s", (_title, parts, expected) => {
  expect(plan(parts)).toEqual(expected);
});

test("planPodSnapshot: what is made names Pod and Sandbox, and is owned so that both end together", () => {
  const empty = { trigger: undefined, snapshot: undefined, saved: undefined, target: undefined, nowMs: 0 };
  expect(planPodSnapshot({ ...empty, trigger: trigger(), target })).toMatchObject([
    {
      object: {
        metadata: {
          name: "point",
          labels: { "agents.x-k8s.io/sandbox-name-hash": expect.any(String) },
          annotations: { "podsnapshot.gke.io/origin-pod": "box" },
        },
        spec: { sandboxName: "box" },
      },
    },
  ]);
  expect(planPodSnapshot({ ...empty, snapshot: snapshot() })).toMatchObject([
    { object: { metadata: { name: "point", ownerReferences: [{ uid: "snapshot-uid", controller: true }] } } },
  ]);
});

const policy = (labels: Record<string, string>, max?: number): PodSnapshotPolicy => ({
  apiVersion: "podsnapshot.gke.io/v1",
  kind: "PodSnapshotPolicy",
  metadata: { name: "p", namespace },
  spec: {
    selector: { matchLabels: labels },
    ...(max !== undefined && {
      snapshotGroupingRules: {
        groupByLabelValue: { groupRetentionPolicy: { maxSnapshotCountPerGroup: max } },
      },
    }),
  },
});
const readySnapshot = (name: string, second: number, isReady = true): PolicyObserved["snapshots"][number] => {
  const metadata = { name, uid: `uid-${name}`, creationTimestamp: `2026-01-01T00:00:0${second}Z` };
  const status = { conditions: [condition("Ready", isReady ? "True" : "False", "")] };
  return { snapshot: snapshot(metadata, status), saved: saved("SnapshotReady") };
};
const three = [readySnapshot("b", 1), readySnapshot("c", 2, false), readySnapshot("a", 1)];
const present = (name: string): Sandbox => sandbox({ [annotationKeys.restartFrom]: name });

test.each<[string, Partial<PolicyObserved>, object]>([
  ["the newest that is ready, and of one second the first by name", {}, { restartFrom: "a", deleted: [] }],
  ["it is named already", { sandbox: present("a") }, { deleted: [] }],
  ["a policy for others: nothing", { policies: [policy({ app: "b" })] }, { deleted: [] }],
  ["no policy any more: the wish goes", { policies: [], sandbox: present("a") }, { restartFrom: null, deleted: [] }],
  ["no policy: a user's wish stays", { policies: [], sandbox: present("mine") }, { deleted: [] }],
  ["none is left: the wish goes", { snapshots: [], sandbox: present("a") }, { restartFrom: null, deleted: [] }],
  [
    "more than are kept: the oldest goes",
    { policies: [policy({ app: "a" }, 1)], sandbox: present("a") },
    { deleted: [{ name: "b", uid: "uid-b" }] },
  ],
  [
    "snapshots of an earlier Sandbox of the name are not its own",
    { sandbox: { ...sandbox(), metadata: { ...sandbox().metadata, uid: "another" } } },
    { deleted: [] },
  ],
])("planPolicy: %s", (_title, parts, expected) => {
  const base = { sandbox: sandbox(), policies: [policy({ app: "a" })], snapshots: three };
  expect(planPolicy({ ...base, ...parts })).toEqual(expected);
});
