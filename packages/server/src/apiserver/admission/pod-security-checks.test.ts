import type { Container, PodSpec } from "@agent-sandbox/api";
import { namespaces } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { MemoryReader } from "../auth/testing/memory-reader.ts";
import { PodSecurity } from "./pod-security.ts";
import { podSecurityViolations } from "./pod-security-checks.ts";
import { admit, object } from "./testing/admit.ts";

const container = (part: Partial<Container> = {}, name = "c"): Container => ({ name, image: "i", ...part });
const spec = (part: Partial<PodSpec> = {}): PodSpec => ({ containers: [container()], ...part });
const safe = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
const restricted = (part: Partial<PodSpec> = {}, own: Container["securityContext"] = {}): PodSpec => ({
  securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  containers: [container({ securityContext: { ...safe, ...own } })],
  ...part,
});

test.each<[string, PodSpec, string]>([
  ["a plain pod passes", spec(), ""],
  ["host namespaces", spec({ hostNetwork: true, hostPID: true }), "host namespaces (hostNetwork=true, hostPID=true)"],
  ["hostPath", spec({ volumes: [{ name: "h", hostPath: { path: "/" } }] }), 'hostPath volumes (volume "h")'],
  [
    "two hostPaths",
    spec({
      volumes: [
        { name: "h", hostPath: { path: "/" } },
        { name: "i", hostPath: { path: "/" } },
      ],
    }),
    'hostPath volumes (volumes "h", "i")',
  ],
  [
    "host port",
    spec({ containers: [container({ ports: [{ containerPort: 1, hostPort: 80 }] })] }),
    'hostPort (container "c" uses hostPort 80)',
  ],
  [
    "privileged",
    spec({ containers: [container({ securityContext: { privileged: true } })] }),
    'privileged (container "c" must not set securityContext.privileged=true)',
  ],
  [
    "added capability",
    spec({ containers: [container({ securityContext: { capabilities: { add: ["SYS_ADMIN", "KILL"] } } })] }),
    'non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
  ],
  [
    "proc mount",
    spec({ containers: [container({ securityContext: { procMount: "Unmasked" } })] }),
    'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
  ],
  [
    "unconfined seccomp",
    spec({ securityContext: { seccompProfile: { type: "Unconfined" } } }),
    'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
  ],
  [
    "sysctl",
    spec({ securityContext: { sysctls: [{ name: "kernel.msgmax", value: "1" }] } }),
    "forbidden sysctls (kernel.msgmax)",
  ],
  [
    "selinux",
    spec({ securityContext: { seLinuxOptions: { type: "spc_t", user: "u" } } }),
    'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set)',
  ],
  [
    "init containers count",
    spec({ initContainers: [container({ securityContext: { privileged: true } }, "i")] }),
    'privileged (container "i" must not set securityContext.privileged=true)',
  ],
])("podSecurityViolations: baseline: %s", (_title, pod, expected) => {
  expect(podSecurityViolations(pod, "baseline")).toBe(expected);
});

test.each<[string, PodSpec, string]>([
  ["a hardened pod passes", restricted(), ""],
  [
    "a plain pod names everything it lacks",
    spec(),
    'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")',
  ],
  [
    "volume types",
    restricted({ volumes: [{ name: "h", hostPath: { path: "/" } }] }),
    'restricted volume types (volume "h" uses restricted volume type "hostPath")',
  ],
  ["root user", restricted({}, { runAsUser: 0 }), 'runAsUser=0 (container "c" must not set runAsUser=0)'],
  [
    "may be root",
    restricted({}, { runAsNonRoot: false }),
    'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)',
  ],
  ["binding low ports is allowed", restricted({}, { capabilities: { drop: ["ALL"], add: ["NET_BIND_SERVICE"] } }), ""],
  [
    "other capabilities are not",
    restricted({}, { capabilities: { drop: ["ALL"], add: ["CHOWN"] } }),
    'unrestricted capabilities (container "c" must not include "CHOWN" in securityContext.capabilities.add)',
  ],
])("podSecurityViolations: restricted: %s", (_title, pod, expected) => {
  expect(podSecurityViolations(pod, "restricted")).toBe(expected);
});

function inNamespace(labels: Record<string, string>): PodSecurity {
  const reader = new MemoryReader();
  reader.put(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "a", labels } });
  return new PodSecurity(reader);
}

test("PodSecurity: enforce refuses, warn warns, no label does neither", async () => {
  const pod = { resource: "pods", object: object("Pod", { spec: spec({ hostNetwork: true }) }) };
  await expect(admit(inNamespace({ "pod-security.kubernetes.io/enforce": "baseline" }), pod)).rejects.toThrow(
    'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)',
  );
  expect(await admit(inNamespace({ "pod-security.kubernetes.io/warn": "baseline" }), pod)).toEqual([
    'would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)',
  ]);
  expect(await admit(inNamespace({}), pod)).toEqual([]);
});

test("PodSecurity: an unknown level on a namespace is refused", async () => {
  const labels = { "pod-security.kubernetes.io/enforce": "strict" };
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "a", labels } };
  await expect(admit(inNamespace({}), { resource: "namespaces", object: namespace })).rejects.toThrow(
    "must be one of privileged, baseline, restricted",
  );
});
