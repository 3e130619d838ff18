import type {
  Condition,
  Sandbox,
  SandboxArchive,
  SandboxClaim,
  SandboxSnapshot,
  SandboxTemplate,
  SandboxWarmPool,
} from "@agent-sandbox/api";

/** The namespace everything lives in. */
export const namespace = "default";

const podSpec = { containers: [{ name: "main", image: "busybox" }] };

/** A Sandbox to create. */
export function sandbox(name: string, spec: Partial<Sandbox["spec"]> = {}): Sandbox {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace },
    spec: { podTemplate: { spec: podSpec }, ...spec },
  };
}

/** A template to create. */
export function template(name: string, spec: Partial<SandboxTemplate["spec"]> = {}): SandboxTemplate {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: { name, namespace },
    spec: { podTemplate: { spec: podSpec }, ...spec },
  };
}

/** A pool of a template to create. */
export function pool(name: string, replicas: number, spec: Partial<SandboxWarmPool["spec"]> = {}): SandboxWarmPool {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: { name, namespace },
    spec: { replicas, sandboxTemplateRef: { name: "tpl" }, ...spec },
  };
}

/** A claim on a pool to create. */
export function claim(name: string, spec: Partial<SandboxClaim["spec"]> = {}): SandboxClaim {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata: { name, namespace },
    spec: { warmPoolRef: { name: "pool" }, ...spec },
  };
}

/** A snapshot of a Sandbox to create. */
export function snapshot(
  name: string,
  sandboxName: string,
  spec: Partial<SandboxSnapshot["spec"]> = {},
): SandboxSnapshot {
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace },
    spec: { sandboxName, ...spec },
  };
}

/** An archive of the Sandbox of that name to create. */
export function archive(name: string, spec: SandboxArchive["spec"] = {}): SandboxArchive {
  return { apiVersion: "agent-sandbox.dev/v1alpha1", kind: "SandboxArchive", metadata: { name, namespace }, spec };
}

/** One condition of an object, if it has it. */
export function condition(
  object: { readonly status?: { readonly conditions?: Condition[] } } | undefined,
  type: string,
): Condition | undefined {
  return object?.status?.conditions?.find((entry) => entry.type === type);
}
