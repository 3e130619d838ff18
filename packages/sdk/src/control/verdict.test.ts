import type { Pod } from "@agent-sandbox/api/builtin.gen";
import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { expect, test } from "vitest";
import { judgePod, judgeSandbox } from "./verdict.ts";

function sandbox(
  status: "True" | "False",
  reason: string,
  extra: { generation?: number; observed?: number } = {},
): Sandbox {
  const { generation = 1, observed = 1 } = extra;
  const ready = {
    type: "Ready",
    status,
    reason,
    message: "text",
    lastTransitionTime: "",
    observedGeneration: observed,
  };
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "a", namespace: "n", generation },
    spec: { podTemplate: { spec: { containers: [] } } },
    status: { conditions: [ready] },
  };
}

function waitingPod(reason: string): Pod {
  const status = {
    name: "c",
    image: "img",
    imageID: "",
    ready: false,
    restartCount: 0,
    state: { waiting: { reason, message: "why" } },
  };
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, status: { containerStatuses: [status] } } as Pod;
}

test("judgeSandbox: ready is done", () => {
  expect(judgeSandbox(sandbox("True", "DependenciesReady"))).toEqual({ kind: "done" });
});

test("judgeSandbox: a condition about an older spec decides nothing", () => {
  expect(judgeSandbox(sandbox("True", "DependenciesReady", { generation: 2 })).kind).toBe("waiting");
});

test.each([
  { reason: "InvalidConfiguration", code: "invalid-argument" },
  { reason: "SandboxExpired", code: "sandbox-expired" },
  { reason: "PodFailed", code: "sandbox-failed" },
])("judgeSandbox: $reason ends the wait with $code", ({ reason, code }) => {
  expect(judgeSandbox(sandbox("False", reason))).toMatchObject({ kind: "failed", error: { code } });
});

test("judgeSandbox: a suspended sandbox is waited for", () => {
  expect(judgeSandbox(sandbox("False", "SandboxSuspended"))).toEqual({ kind: "waiting", why: "text" });
});

test("judgePod: an image that cannot be pulled names the image", () => {
  const verdict = judgePod(waitingPod("ImagePullBackOff"), true);
  expect(verdict).toMatchObject({
    kind: "failed",
    error: { code: "invalid-argument", message: "image 'img' cannot be used: why" },
  });
});

test("judgePod: a first failed pull may be the network's", () => {
  expect(judgePod(waitingPod("ErrImagePull"), true)).toEqual({ kind: "waiting", why: "pulling image img" });
});

test("judgePod: a full machine ends the wait here, and not on a cluster that may grow", () => {
  const condition = { type: "PodScheduled", status: "False", reason: "Unschedulable", message: "no room" };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, status: { conditions: [condition] } } as Pod;
  expect(judgePod(pod, true)).toMatchObject({ kind: "failed", error: { code: "quota-exceeded" } });
  expect(judgePod(pod, false).kind).toBe("waiting");
});

test("judgePod: a volume that is being bound is waited for", () => {
  const message = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
  const condition = { type: "PodScheduled", status: "False", reason: "Unschedulable", message };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a" }, status: { conditions: [condition] } } as Pod;
  expect(judgePod(pod, true).kind).toBe("waiting");
});
