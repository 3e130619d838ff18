import type { SandboxBlueprint } from "@agent-sandbox/api/blueprint";
import type { Container, PodSpec } from "@agent-sandbox/api/builtin.gen";
import { hostImage } from "@agent-sandbox/api/image-reference";
import type { Sandbox, SandboxClaim, SandboxSpec, VolumeClaimTemplate } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys, labelKeys } from "@agent-sandbox/api/labels";
import { formatTimestamp, formatTimestampMs } from "@agent-sandbox/api/timestamp";
import { SandboxError } from "../errors/sandbox-error.ts";
import type { ClaimOptions, CreateOptions, Volume } from "./create-options.ts";

/** The value of the created-by label on what this SDK makes. */
export const createdBy = "typescript-client";

/** What an object is made from besides the user's options. */
export interface ObjectContext {
  readonly name: string;
  readonly namespace: string;
  readonly nowMs: number;
  /** Our own node agent runs the Pod: it brings sandboxd, and the image `host`. */
  readonly isOwnEngine: boolean;
  /** What a snapshot's own sandbox has said of what runs; stands in the place of the Pod that the options describe. */
  readonly inherited?: SandboxBlueprint | undefined;
}

/** The Sandbox for some options; throws `invalid-argument` for what cannot become one. */
export function sandboxObject(options: CreateOptions, context: ObjectContext): Sandbox {
  const { name, namespace, nowMs } = context;
  const { ttlMs, suspensionStrategy, wakePolicy, podFailurePolicy, fromSnapshot, volumes = [] } = options;
  const spec: SandboxSpec = {
    ...(context.inherited ?? { podTemplate: { ...options.podTemplate, spec: podSpec(options, context) } }),
    ...(fromSnapshot !== undefined && { restoreFrom: { snapshotName: fromSnapshot } }),
    ...(volumes.length > 0 && { volumeClaimTemplates: volumes.map(volumeClaim) }),
    ...(ttlMs !== undefined && { shutdownTime: shutdownTime(nowMs, ttlMs), shutdownPolicy: "Delete" as const }),
    ...autoSuspension(options),
    ...(suspensionStrategy !== undefined && { suspensionStrategy: { type: suspensionStrategy } }),
    ...(wakePolicy !== undefined && { wakePolicy }),
    ...(podFailurePolicy !== undefined && { podFailurePolicy }),
    ...options.spec,
  };
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name,
      namespace,
      labels: { ...options.labels, [labelKeys.createdBy]: createdBy },
      ...(options.annotations !== undefined && { annotations: { ...options.annotations } }),
    },
    spec,
  };
}

/** Both times in whole seconds, at least one; the second is nothing without the first. */
function autoSuspension({ autoSuspendMs, hibernateAfterMs }: CreateOptions): Pick<SandboxSpec, "autoSuspension"> {
  if (autoSuspendMs === undefined) {
    if (hibernateAfterMs === undefined) return {};
    throw new SandboxError("invalid-argument", "hibernateAfterMs needs autoSuspendMs, after which the sandbox freezes");
  }
  const secondsOf = (timeMs: number): number => Math.max(1, Math.round(timeMs / 1000));
  return {
    autoSuspension: {
      inactivityTimeoutSeconds: secondsOf(autoSuspendMs),
      ...(hibernateAfterMs !== undefined && { hibernateAfterSeconds: secondsOf(hibernateAfterMs) }),
    },
  };
}

function podSpec(options: CreateOptions, context: ObjectContext): PodSpec {
  const { podTemplate, runtime } = options;
  const given = podTemplate?.spec;
  const [first, ...rest] = given?.containers ?? [];
  return {
    // What runs in a sandbox is not trusted with the cluster's API.
    automountServiceAccountToken: false,
    ...given,
    ...(runtime !== undefined && { runtimeClassName: runtime }),
    containers: [container(options, context, first), ...rest],
  };
}

function container(options: CreateOptions, context: ObjectContext, given: Partial<Container> = {}): Container {
  const { env = {}, cpu, memory, disk, workdir, volumes = [] } = options;
  const variables = Object.entries(env).map(([name, value]) => ({ name, value }));
  const limits = {
    ...(cpu !== undefined && { cpu: String(cpu) }),
    ...(memory !== undefined && { memory }),
    ...(disk !== undefined && { "ephemeral-storage": disk }),
  };
  const mounts = volumes.map(({ path }, index) => ({ name: volumeName(index), mountPath: path }));
  return {
    ...given,
    name: given.name ?? "sandbox",
    image: imageOf(options.image ?? given.image, context),
    ...commandOf(options, context, given),
    ...(variables.length > 0 && { env: [...(given.env ?? []), ...variables] }),
    ...(Object.keys(limits).length > 0 && {
      resources: { ...given.resources, limits: { ...given.resources?.limits, ...limits } },
    }),
    ...(workdir !== undefined && { workingDir: workdir }),
    ...(mounts.length > 0 && { volumeMounts: [...(given.volumeMounts ?? []), ...mounts] }),
  };
}

function imageOf(image: string | undefined, { isOwnEngine }: ObjectContext): string {
  if (image !== undefined && image !== "host") return image;
  if (isOwnEngine) return hostImage;
  const why = "the image 'host' exists on the one-machine engine only";
  throw new SandboxError(
    "invalid-argument",
    `image: ${image === undefined ? "none given, and " : ""}${why}; name an image`,
  );
}

/** Waits for commands: the daemon that our node brings into every sandbox, without an entrypoint of its own. */
const ownKeepAlive = ["/.agent-sandbox/sandboxd", "init", "--listen=off"];

/** The same on a cluster, with what nearly every image has; it ends at once on SIGTERM. */
const shellKeepAlive = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"];

function commandOf(
  { command }: CreateOptions,
  { isOwnEngine }: ObjectContext,
  given: Partial<Container>,
): Pick<Container, "command" | "stdin"> {
  // A shell or an interpreter waits for input instead of ending.
  if (command === "image") return isEmpty(given.command) && isEmpty(given.args) ? { stdin: given.stdin ?? true } : {};
  if (command !== undefined) return { command: [...command] };
  if (given.command !== undefined) return {};
  return { command: [...(isOwnEngine ? ownKeepAlive : shellKeepAlive)] };
}

function isEmpty(words: readonly string[] | undefined): boolean {
  return words === undefined || words.length === 0;
}

function volumeName(index: number): string {
  return `volume-${index}`;
}

function volumeClaim({ size, storageClass }: Volume, index: number): VolumeClaimTemplate {
  return {
    metadata: { name: volumeName(index) },
    spec: {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage: size } },
      ...(storageClass !== undefined && { storageClassName: storageClass }),
    },
  };
}

/** RFC 3339 in whole seconds, rounded up, as the API stores it. */
export function shutdownTime(nowMs: number, ttlMs: number): string {
  if (!Number.isFinite(ttlMs) || ttlMs <= 0)
    throw new SandboxError("invalid-argument", `ttlMs must be above 0, not ${ttlMs}`);
  return formatTimestamp(Math.ceil((nowMs + ttlMs) / 1000) * 1000);
}

/** The SandboxClaim for some options. */
export function claimObject(
  pool: string,
  options: ClaimOptions,
  context: Omit<ObjectContext, "isOwnEngine">,
): SandboxClaim {
  const { env = {}, ttlMs, startPolicy } = options;
  const variables = Object.entries(env).map(([name, value]) => ({ name, value }));
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata: {
      name: context.name,
      namespace: context.namespace,
      labels: { ...options.labels, [labelKeys.createdBy]: createdBy },
      annotations: { [annotationKeys.clientFirstRequestedAt]: formatTimestampMs(context.nowMs) },
    },
    spec: {
      warmPoolRef: { name: pool },
      ...(variables.length > 0 && { env: variables }),
      ...(ttlMs !== undefined && {
        lifecycle: { shutdownTime: shutdownTime(context.nowMs, ttlMs), shutdownPolicy: "Delete" as const },
      }),
      ...(startPolicy !== undefined && { startPolicy }),
    },
  };
}
