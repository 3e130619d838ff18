import type {
  Condition,
  NetworkPolicy,
  OwnerReference,
  Pod,
  Sandbox,
  SandboxArchive,
  SandboxClaim,
  SandboxSnapshot,
  SandboxTemplate,
  SandboxWarmPool,
  Service,
} from "@agent-sandbox/api";
import { formatTimestamp, labelKeys, nameHash } from "@agent-sandbox/api";

/** The instant all builders count from. */
export const epochMs = Date.UTC(2026, 0, 1);

/** Seconds after the epoch, as the wire has it. */
export function at(seconds: number): string {
  return formatTimestamp(epochMs + seconds * 1000);
}

/** Changes of one object; nested objects are replaced, not merged. */
interface Parts<S, T> {
  readonly name?: string;
  readonly metadata?: Partial<Sandbox["metadata"]>;
  readonly spec?: Partial<S>;
  readonly status?: T;
}

/** What the API server fills in at creation. */
function metadataOf(name: string, changes: Partial<Sandbox["metadata"]> = {}): Sandbox["metadata"] {
  return {
    name,
    namespace: "default",
    uid: `uid-${name}`,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: at(0),
    ...changes,
  };
}

/** A Sandbox with one container. */
export function aSandbox({
  name = "my-sandbox",
  metadata,
  spec,
  status,
}: Parts<Sandbox["spec"], Sandbox["status"]> = {}): Sandbox {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: metadataOf(name, metadata),
    spec: { podTemplate: { spec: { containers: [{ name: "main", image: "busybox" }] } }, ...spec },
    ...(status === undefined ? {} : { status }),
  };
}

/** A controller reference. */
export function ownedBy(
  kind: string,
  name: string,
  uid = `uid-${name}`,
  apiVersion = "agents.x-k8s.io/v1beta1",
): OwnerReference {
  return { apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true };
}

/** A reference to a pool or claim. */
export function ownedByExtension(kind: string, name: string, uid = `uid-${name}`): OwnerReference {
  return ownedBy(kind, name, uid, "extensions.agents.x-k8s.io/v1beta1");
}

/** A Pod of the default Sandbox, running and ready with one address. */
export function aPod({
  name = "my-sandbox",
  metadata,
  status,
}: {
  name?: string;
  metadata?: Partial<Pod["metadata"]>;
  status?: Pod["status"];
} = {}): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      namespace: "default",
      uid: `pod-${name}`,
      resourceVersion: "1",
      creationTimestamp: at(0),
      labels: { [labelKeys.sandboxNameHash]: nameHash("my-sandbox") },
      ownerReferences: [ownedBy("Sandbox", "my-sandbox")],
      ...metadata,
    },
    spec: { nodeName: "node-1", containers: [] },
    status: status ?? readyPodStatus(),
  };
}

/** Running, scheduled, Ready, one address. */
export function readyPodStatus(): NonNullable<Pod["status"]> {
  return {
    phase: "Running",
    conditions: [
      { type: "PodScheduled", status: "True" },
      { type: "Ready", status: "True" },
    ],
    podIPs: [{ ip: "10.0.0.1" }],
  };
}

/** A headless Service of the default Sandbox. */
export function aService(parts: { metadata?: Partial<Service["metadata"]>; spec?: Service["spec"] } = {}): Service {
  const tracking = { [labelKeys.sandboxNameHash]: nameHash("my-sandbox") };
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      name: "my-sandbox",
      namespace: "default",
      uid: "svc-my-sandbox",
      resourceVersion: "1",
      labels: tracking,
      ownerReferences: [ownedBy("Sandbox", "my-sandbox")],
      ...parts.metadata,
    },
    spec: parts.spec ?? { clusterIP: "None", selector: tracking },
  };
}

/** A condition of the default transition time. */
export function aCondition(type: string, status: Condition["status"], rest: Partial<Condition> = {}): Condition {
  return { type, status, reason: "Because", message: "", lastTransitionTime: at(0), observedGeneration: 1, ...rest };
}

/** A template with one container and no policy of its own. */
export function aTemplate({
  name = "tpl",
  metadata,
  spec,
}: Parts<SandboxTemplate["spec"], never> = {}): SandboxTemplate {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: metadataOf(name, metadata),
    spec: { podTemplate: { spec: { containers: [{ name: "main", image: "busybox" }] } }, ...spec },
  };
}

/** A pool of one member. */
export function aPool({
  name = "pool",
  metadata,
  spec,
  status,
}: Parts<SandboxWarmPool["spec"], SandboxWarmPool["status"]> = {}): SandboxWarmPool {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: metadataOf(name, metadata),
    spec: { sandboxTemplateRef: { name: "tpl" }, ...spec },
    ...(status === undefined ? {} : { status }),
  };
}

/** A claim on the default pool. */
export function aClaim({
  name = "claim",
  metadata,
  spec,
  status,
}: Parts<SandboxClaim["spec"], SandboxClaim["status"]> = {}): SandboxClaim {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata: metadataOf(name, metadata),
    spec: { warmPoolRef: { name: "pool" }, ...spec },
    ...(status === undefined ? {} : { status }),
  };
}

/** An unclaimed member of the default pool; `ready` gives it an address and a True condition. */
export function aMember(
  name: string,
  {
    ready = true,
    node = "node-1",
    ...parts
  }: { ready?: boolean; node?: string } & Parts<Sandbox["spec"], Sandbox["status"]> = {},
): Sandbox {
  const member = aSandbox({
    name,
    ...(parts.spec === undefined ? {} : { spec: parts.spec }),
    metadata: {
      labels: {
        [labelKeys.warmPoolSandbox]: nameHash("pool"),
        [labelKeys.templateRefHash]: nameHash("tpl"),
        "agents.x-k8s.io/launch-type": "warm",
      },
      ownerReferences: [ownedByExtension("SandboxWarmPool", "pool")],
      ...parts.metadata,
    },
  });
  const status = ready
    ? { podIPs: ["10.0.0.9"], nodeName: node, conditions: [aCondition("Ready", "True")] }
    : { conditions: [aCondition("Ready", "False")] };
  return { ...member, status: parts.status ?? status };
}

/** The policy that belongs to a template. */
export function aPolicy(template: SandboxTemplate, spec: NonNullable<NetworkPolicy["spec"]>): NetworkPolicy {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: {
      name: `${template.metadata.name}-network-policy`,
      namespace: "default",
      uid: "policy-1",
      resourceVersion: "1",
      ownerReferences: [ownedByExtension("SandboxTemplate", template.metadata.name)],
    },
    spec,
  };
}

/** A snapshot of the default Sandbox, as far as it has come. */
export function aSnapshot(
  state: "pending" | "saving" | "ready" | "failed",
  parts: Parts<SandboxSnapshot["spec"], SandboxSnapshot["status"]> = {},
): SandboxSnapshot {
  const reasons = { ready: "SnapshotReady", failed: "SnapshotFailed", saving: "SnapshotSaving", pending: "" } as const;
  const verdict = { reason: reasons[state], message: `words of ${state}` };
  const conditions = state === "pending" ? [] : [aCondition("Ready", state === "ready" ? "True" : "False", verdict)];
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: metadataOf(parts.name ?? "snap", parts.metadata),
    spec: { sandboxName: "my-sandbox", ...parts.spec },
    status: { conditions, ...(state !== "pending" && { nodeName: "node-1" }), ...parts.status },
  };
}

/** An archive of `my-sandbox`. */
export function anArchive(parts: Parts<SandboxArchive["spec"], SandboxArchive["status"]> = {}): SandboxArchive {
  return {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxArchive",
    metadata: metadataOf(parts.name ?? "my-sandbox", parts.metadata),
    spec: { ...parts.spec },
    ...(parts.status !== undefined && { status: parts.status }),
  };
}
