/** Group of the Sandbox kind; also the prefix of its labels and annotations. */
export const coreGroup = "agents.x-k8s.io";
/** Group of templates, claims and warm pools. */
export const extensionsGroup = "extensions.agents.x-k8s.io";
/** Group of the kinds and annotations that are ours alone. */
export const ownGroup = "agent-sandbox.dev";

/** Label keys on the wire. */
export const labelKeys = {
  /** Name hash of the Sandbox; on Pod, Service and PVC. */
  sandboxNameHash: "agents.x-k8s.io/sandbox-name-hash",
  /** "true" authorises the adoption of an unowned object. */
  adoptable: "agents.x-k8s.io/adoptable",
  /** Which client made the object. */
  createdBy: "agents.x-k8s.io/created-by",
  /** "warm" or "cold". */
  launchType: "agents.x-k8s.io/launch-type",
  /** Name hash of the warm pool whose unclaimed member this is. */
  warmPoolSandbox: "agents.x-k8s.io/warm-pool-sandbox",
  /** Name hash of the template; the NetworkPolicy selects on it. */
  templateRefHash: "agents.x-k8s.io/sandbox-template-ref-hash",
  /** Hash of the blueprint, for drift detection. */
  templateHash: "agents.x-k8s.io/sandbox-template-hash",
  /** Deprecated hash of the pod template alone; written for outside consumers, never read. */
  podTemplateHash: "agents.x-k8s.io/sandbox-pod-template-hash",
  /** Uid of the owning claim. */
  claimUid: "agents.x-k8s.io/claim-uid",
  /** Deprecated label form of the reservation annotation; still read from claims. */
  legacySandboxName: "agents.x-k8s.io/sandbox-name",
} as const;

/** Annotation keys on the wire. */
export const annotationKeys = {
  /** Name of the Pod that a Sandbox tracks. */
  podName: "agents.x-k8s.io/pod-name",
  /** Template name, for metrics. */
  templateRef: "agents.x-k8s.io/sandbox-template-ref",
  /** Sorted, comma-joined label keys that were copied from the pod template. */
  propagatedLabels: "agents.x-k8s.io/propagated-labels",
  /** Sorted, comma-joined annotation keys that were copied from the pod template. */
  propagatedAnnotations: "agents.x-k8s.io/propagated-annotations",
  /** JSON map of W3C trace headers. */
  traceContext: "opentelemetry.io/trace-context",
  /** Reservation on a claim: name of the warm Sandbox assigned to it. */
  sandboxName: "agents.x-k8s.io/sandbox-name",
  /** RFC 3339 with nanoseconds: when an SDK asked for the claim. */
  clientFirstRequestedAt: "agents.x-k8s.io/client-first-requested-at",
  /** RFC 3339 with nanoseconds: when the controller first saw the claim. */
  controllerFirstObservedAt: "agents.x-k8s.io/controller-first-observed-at",
  /** RFC 3339 with nanoseconds: first Ready, or the word "unknown". */
  claimFirstReadyAt: "agents.x-k8s.io/claim-first-ready-at",
  /** RFC 3339 with nanoseconds: written by an optional outside webhook. */
  webhookFirstObservedAt: "agents.x-k8s.io/webhook-first-observed-at",
  /** Reserved key that nothing reads. */
  creationLatencyRecorded: "agents.x-k8s.io/creation-latency-recorded",
  /** When the storage migration touched the object. */
  storageMigratedAt: "agents.x-k8s.io/storage-migrated-at",
  /** "true" on pools that the migration made. */
  migrationShadow: "agents.x-k8s.io/migration-shadow",
  /** Template for which the migration made a pool. */
  migrationSourceTemplate: "agents.x-k8s.io/migration-source-template",
  /** Cluster autoscaler: the Pod may be evicted. */
  safeToEvict: "cluster-autoscaler.kubernetes.io/safe-to-evict",
  /** Conversion memory of a Sandbox last written through v1alpha1. */
  sandboxState: "api.agents.x-k8s.io/v1alpha1-sandbox-state",
  /** Conversion memory of a claim last written through v1alpha1. */
  claimState: "api.agents.x-k8s.io/v1alpha1-sandboxclaim-state",
  /** Conversion memory of a template; stripped, never needed. */
  templateState: "api.agents.x-k8s.io/v1alpha1-sandboxtemplate-state",
  /** Conversion memory of a pool; stripped, never needed. */
  warmPoolState: "api.agents.x-k8s.io/v1alpha1-sandboxwarmpool-state",
  /** Carries the v1beta1-only policy field in the v1alpha1 view of a template. */
  volumeClaimTemplatesPolicy: "api.agents.x-k8s.io/v1beta1-volume-claim-templates-policy",
  /** Carries v1beta1 fields that have no v1alpha1 home in the v1alpha1 view of an object. */
  hubFields: "agent-sandbox.dev/v1beta1-fields",
  /** RFC 3339: last activity that router or node saw. */
  lastActivityAt: "agent-sandbox.dev/last-activity-at",
  /** RFC 3339: since when a user's suspension counts; removing it makes it count from now, so that earlier traffic is forgotten. */
  suspendedAt: "agent-sandbox.dev/suspended-at",
  /** On a Sandbox: the id of the sleep, or the uid of the snapshot, whose memory is given up, so that it starts from files alone. */
  coldStart: "agent-sandbox.dev/cold-start",
  /** On a Sandbox: the SandboxSnapshot of its own that it wakes from, once its Pod has gone; it falls back to it at every wake. */
  restartFrom: "agent-sandbox.dev/restart-from",
  /** On a PodSnapshot: uid of the trigger that it was made for. */
  triggeredBy: "agent-sandbox.dev/triggered-by",
  /** Address of a Sandbox for its whole life, and of its Pod; written by admission alone, or a Pod could take its neighbour's. */
  address: "agent-sandbox.dev/address",
  /** On a Pod: "disabled" leaves sandboxd out; "published-ports" lets it listen on the published clients' ports too. */
  daemon: "agent-sandbox.dev/sandboxd",
  /** On a Sandbox or its pod template: "disabled" leaves its containers as they are written, see `withContainerDefaults`. */
  containerDefaults: "agent-sandbox.dev/container-defaults",
  /** On a Sandbox, and from there on its Pod: what is kept running in it, as JSON, see `servicesOf`. */
  services: "agent-sandbox.dev/services",
  /** On a Pod that stands for a process of the engine and that no node runs: which one. */
  virtualPod: "agent-sandbox.dev/virtual",
  /**
   * On a pool member: pod-template annotation keys that are the pool's default and not the template's, comma-joined. They
   * reach the Pod only while the pool owns the Sandbox, so that a transfer need not touch `spec`.
   */
  poolDefaultAnnotations: "agent-sandbox.dev/pool-default-annotations",
  /** How often the controller replaced a failed Pod of this Sandbox, and which one last: `<count>@<Pod UID>`. */
  podReplacements: "agent-sandbox.dev/pod-replacements",
  /** On a SandboxSnapshot: its files come out of the archive of this id, and no node takes it of a Sandbox. */
  recallOf: "agent-sandbox.dev/recall-of",
  /** On a SandboxArchive: "inactivity" where `archiveAfterSeconds` made it; it goes when its Sandbox wakes before it has left. */
  archiveCause: "agent-sandbox.dev/archive-cause",
  /** On a Sandbox: the archive that it was not given up for in the end. Writing it makes a deletion fail that carries the version before. */
  archiveCalledOff: "agent-sandbox.dev/archive-called-off",
} as const;

/** Values of the created-by label that are counted by name. */
const knownCreators = ["go-client", "python-client", "typescript-client", "controller"] as const;

/** The creator that metrics and Pods show; anything outside the closed list is "unknown", so label sets stay bounded. */
export function normalizeCreator(value: string | undefined): (typeof knownCreators)[number] | "unknown" {
  return knownCreators.find((creator) => creator === value) ?? "unknown";
}

/** Whether a template may not set that label on its Pod. Labels of our own domain mean nothing on a Pod; `verify` selects by one. */
export function isReservedLabel(key: string): boolean {
  return key.startsWith(`${coreGroup}/`) || key.startsWith(`${extensionsGroup}/`);
}

/** What a template may say of its Pod in our own domain. Services are not among it: they are declared on the Sandbox itself. */
const ownTemplateAnnotations: readonly string[] = [annotationKeys.daemon, annotationKeys.containerDefaults];

/** Whether a template may not set that annotation on its Pod. */
export function isReservedAnnotation(key: string): boolean {
  const isOwn = key.startsWith(`${ownGroup}/`) && !ownTemplateAnnotations.includes(key);
  return isOwn || isReservedLabel(key) || key === annotationKeys.traceContext;
}

/** Keeps a template, and with it its network policy, while Pods made from it run. */
export const templateFinalizer = "agent-sandbox.dev/network-policy";

/** Keeps a SandboxArchive until its content is removed from the store. */
export const archiveFinalizer = "agent-sandbox.dev/archive-content";

/** Driver and provisioner of the volumes that are images on a node. */
export const localVolumeDriver = "agent-sandbox.dev/local";

/** Condition of a Pod whose node found one of its file systems full; False once there is room again. */
export const diskFullCondition = "agent-sandbox.dev/DiskFull";

/** Condition of a Pod under gVisor: its message names the build of runsc that drives the sandbox; False once that build is missing. */
export const runtimeVersionCondition = "agent-sandbox.dev/RuntimeVersion";
