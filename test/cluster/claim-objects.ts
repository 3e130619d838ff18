import type { SandboxClaim, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";

const extensions = "extensions.agents.x-k8s.io/v1beta1";

/** A container that the fake kubelet can run. */
export function container(image = "example.com/app:1"): { name: string; image: string } {
  return { name: "main", image };
}

/** A template of one container. */
export function aTemplate(name: string, spec: Partial<SandboxTemplate["spec"]> = {}): SandboxTemplate {
  const podTemplate = { spec: { containers: [container()] } };
  return { apiVersion: extensions, kind: "SandboxTemplate", metadata: { name }, spec: { podTemplate, ...spec } };
}

/** A pool over a template. */
export function aPool(name: string, template: string, replicas: number): SandboxWarmPool {
  const spec = { replicas, sandboxTemplateRef: { name: template } };
  return { apiVersion: extensions, kind: "SandboxWarmPool", metadata: { name }, spec };
}

/** A claim on a pool. */
export function aClaim(name: string, pool: string, spec: Partial<SandboxClaim["spec"]> = {}): SandboxClaim {
  return {
    apiVersion: extensions,
    kind: "SandboxClaim",
    metadata: { name },
    spec: { warmPoolRef: { name: pool }, ...spec },
  };
}
