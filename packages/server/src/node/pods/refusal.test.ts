import type { Container, Pod, PodSpec } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type NodeLimits, refusalOf, runtimeFor } from "./refusal.ts";

const gvisor = { runtime: "runsc", available: true, checkpoint: true, pause: true, multiContainer: true } as const;
const limits: NodeLimits = {
  allowRunc: false,
  hostPathAllowList: ["/srv/shared"],
  runtimes: [gvisor],
  architecture: "amd64",
  cgroupLimits: ["cpu", "memory", "pids", "freezer"],
};

function podOf(spec: Partial<PodSpec>, container: Partial<Container> = {}): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "p" },
    spec: { containers: [{ name: "main", image: "host", ...container }], ...spec },
  };
}

test.each<[string, Pod, string]>([
  ["hostNetwork", podOf({ hostNetwork: true }), "UnsupportedPodFeature"],
  ["hostPID", podOf({ hostPID: true }), "UnsupportedPodFeature"],
  ["hostIPC", podOf({ hostIPC: true }), "UnsupportedPodFeature"],
  ["a privileged container", podOf({}, { securityContext: { privileged: true } }), "UnsupportedPodFeature"],
  ["a device", podOf({}, { resources: { limits: { "nvidia.com/gpu": "1" } } }), "UnexpectedAdmissionError"],
  ["a host port", podOf({}, { ports: [{ containerPort: 80, hostPort: 80 }] }), "UnsupportedPodFeature"],
  ["an nfs volume", podOf({ volumes: [{ name: "n", nfs: { path: "/", server: "s" } }] }), "UnsupportedVolume"],
  [
    "a host path that is not allowed",
    podOf({ volumes: [{ name: "h", hostPath: { path: "/etc" } }] }),
    "HostPathForbidden",
  ],
  [
    "a host path that climbs out of what is allowed",
    podOf({ volumes: [{ name: "h", hostPath: { path: "/srv/shared/../../etc" } }] }),
    "HostPathForbidden",
  ],
  [
    "a host path with an allowed prefix of its name",
    podOf({ volumes: [{ name: "h", hostPath: { path: "/srv/shared2" } }] }),
    "HostPathForbidden",
  ],
  ["kata", podOf({ runtimeClassName: "kata-qemu" }), "RuntimeClassUnsupported"],
  ["runc where the operator does not allow it", podOf({ runtimeClassName: "runc" }), "RuntimeClassForbidden"],
])("refusalOf: %s", (_title, pod, reason) => {
  expect(refusalOf(pod, limits)?.reason).toBe(reason);
});

test("refusalOf: an ordinary pod is taken", () => {
  const volumes = [{ name: "h", hostPath: { path: "/srv/shared/x" } }, { name: "e", emptyDir: {} }, { name: "plain" }];
  expect(refusalOf(podOf({ volumes }, { resources: { limits: { cpu: "1", memory: "1Gi" } } }), limits)).toBeUndefined();
});

test.each(["cpu", "memory"] as const)("refusalOf: a %s limit that no cgroup can hold", (limit) => {
  const without = { ...limits, cgroupLimits: limits.cgroupLimits.filter((one) => one !== limit) };
  expect(refusalOf(podOf({}, { resources: { limits: { [limit]: "1" } } }), without)?.reason).toBe("LimitUnenforceable");
  expect(refusalOf(podOf({}), without)).toBeUndefined();
});

test("runtimeFor: a runtime that is not installed is never replaced by another", () => {
  const missing = { ...limits, runtimes: [{ ...gvisor, available: false, reason: "not there" }] };
  expect(runtimeFor(podOf({}), missing)).toMatchObject({
    reason: "RuntimeMissing",
    message: expect.stringContaining("not there"),
  });
});

test("runtimeFor: runc is runc where it is allowed", () => {
  const allowed = { ...limits, allowRunc: true, runtimes: [gvisor, { ...gvisor, runtime: "runc" as const }] };
  expect(runtimeFor(podOf({ runtimeClassName: "runc" }), allowed)).toBe("runc");
});
