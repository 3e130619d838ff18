import type { Container, OwnerReference, Pod, Sandbox, Service } from "@agent-sandbox/api";
import type { ImageState, ReadyImage } from "../images/image-state.ts";
import { type ResolvedUser, readUserFiles, resolveUser } from "../images/image-user.ts";
import type { ProbeVerdict } from "../probes/probe-verdict.ts";
import { planVolumes, type VolumePlanResult } from "../volumes/plan-volumes.ts";
import { containerMounts } from "./container-mounts.ts";
import { containerProcess } from "./container-process.ts";
import { containerEnvironment } from "./environment.ts";
import type { ObservedPod, Obstacle } from "./observed-pod.ts";
import { unprovenMessage } from "./owner-wait.ts";
import type { PodContext } from "./pod-context.ts";
import { hostnameOf } from "./pod-names.ts";
import { noObjects, type PodObjects } from "./pod-objects.ts";
import { withoutUnbegun } from "./pod-record.ts";
import { etcFilesId } from "./prepare-pod.ts";
import { type NodeLimits, refusalOf } from "./refusal.ts";
import type { StartRequest } from "./start-container.ts";

/** A pod as observed, and what is needed to carry out the steps that follow. */
export interface Observation {
  readonly observed: ObservedPod;
  readonly objects: PodObjects;
  readonly volumes: VolumePlanResult;
  /** The Sandbox that names the pod. */
  readonly sandbox?: Sandbox;
  /** Everything about a container's start except its attempt; only for those that could start. */
  readonly starts: ReadonlyMap<string, Pick<StartRequest, "process" | "mounts" | "image">>;
}

/** What observing needs besides the pod's context. */
export interface ObserveQuestion {
  readonly pod: Pod;
  readonly limits: NodeLimits;
  readonly services: readonly Service[];
  /** Reads what the pod names; asked for only if something is about to be started. */
  readonly readObjects: () => Promise<PodObjects>;
}

/** Reads caches, and the objects the pod names if something is about to be started. */
export async function observePod(
  context: PodContext,
  { pod, limits, services, readObjects }: ObserveQuestion,
  signal: AbortSignal,
): Promise<Observation> {
  const { records, exits, puller, probes: runners, clock, config, tokens } = context;
  const uid = pod.metadata.uid ?? "";
  const written = records.get(uid);
  const record = written === undefined ? undefined : withoutUnbegun(written, (id) => exits.states.has(id));
  const refusal = refusalOf(pod, limits);
  const owner = context.ownerOf(pod);
  const unproven = owner.kind === "unproven" && record?.isPrepared !== true ? owner.reference : undefined;
  const diskFull = context.fullDisks.get(uid);
  const all = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
  const isQuiet =
    pod.metadata.deletionTimestamp !== undefined ||
    refusal !== undefined ||
    unproven !== undefined ||
    isSettled(record?.containers, all);
  const objects = isQuiet ? noObjects : await readObjects();
  const images = new Map<string, ImageState>(all.map(({ name }) => [name, puller.state(`${uid}/${name}`)]));
  const sources = {
    configMap: objects.configMap,
    secret: objects.secret,
    token: (wish: Parameters<typeof tokens.get>[1]) => tokens.get(pod, wish),
    node: context.node,
  };
  const volumes = planVolumes({
    pod,
    sources,
    claim: objects.claim,
    emptyDirBytesDefault: context.config.limits.podDiskBytes,
  });
  const configObstacles = new Map<string, Obstacle>();
  const starts = new Map<string, Pick<StartRequest, "process" | "mounts" | "image">>();
  if (!isQuiet && volumes.ok) {
    for (const container of all) {
      const image = images.get(container.name);
      if (image?.kind !== "ready") continue;
      const start = await configure(
        context,
        { pod, container, image: image.image, objects, services, mounts: volumes.plan.mounts },
        signal,
      );
      if (start.ok) starts.set(container.name, start.start);
      else configObstacles.set(container.name, { reason: "CreateContainerConfigError", message: start.message });
    }
  }
  const probes = new Map<string, ProbeVerdict>();
  for (const { name } of all) {
    const verdict = runners.get(record?.containers[name]?.hostId ?? "")?.verdict();
    if (verdict !== undefined) probes.set(name, verdict);
  }
  const observed: ObservedPod = {
    pod,
    record,
    runtime: exits.states,
    images,
    probes,
    daemons: context.daemons.answering,
    configObstacles,
    ...(!isQuiet && !volumes.ok && { podObstacle: { reason: "FailedMount", message: volumes.message } }),
    ...(unproven !== undefined && { podObstacle: ownerObstacle(unproven) }),
    ...(refusal !== undefined && { refusal }),
    ...(diskFull !== undefined && { diskFull }),
    nodeAddress: config.nodeAddress,
    nowMs: clock.nowMs(),
  };
  return { observed, objects, volumes, starts, ...(owner.kind === "proven" && { sandbox: owner.sandbox }) };
}

function ownerObstacle(reference: OwnerReference): Obstacle {
  return { reason: "OwnerNotProven", message: unprovenMessage(reference), isWatched: true };
}

/** Every container runs: nothing will be started, so nothing has to be read. */
function isSettled(
  runs: Readonly<Record<string, { readonly end?: unknown }>> | undefined,
  all: readonly Container[],
): boolean {
  return all.every(({ name }) => {
    const run = runs?.[name];
    return run !== undefined && run.end === undefined;
  });
}

interface ConfigureQuestion {
  readonly pod: Pod;
  readonly container: Container;
  readonly image: ReadyImage;
  readonly objects: PodObjects;
  readonly services: readonly Service[];
  readonly mounts: Parameters<typeof containerMounts>[0]["volumes"];
}

type ConfigureResult =
  | { readonly ok: true; readonly start: Pick<StartRequest, "process" | "mounts" | "image"> }
  | { readonly ok: false; readonly message: string };

async function configure(
  context: PodContext,
  question: ConfigureQuestion,
  signal: AbortSignal,
): Promise<ConfigureResult> {
  const { pod, container, image, objects, services, mounts: volumes } = question;
  const environment = containerEnvironment(withAddress(context, pod), container, {
    ...objects,
    services,
    node: context.node,
  });
  if (!environment.ok) return environment;
  const imageUser = await imageUserOf(context, image, container.image ?? "", signal);
  const { variables } = environment;
  const built = containerProcess({
    pod,
    container,
    image: image.config,
    variables,
    imageUser,
    hostname: hostnameOf(pod),
  });
  if (!built.ok) return built;
  const mounts = containerMounts({
    pod,
    container,
    volumes,
    variables,
    etcFilesId: etcFilesId(pod.metadata.uid ?? ""),
  });
  if (!mounts.ok) return mounts;
  return { ok: true, start: { process: built.process, mounts: mounts.mounts, image } };
}

/** The address is the node's to give, so the node knows it before the API does. */
function withAddress({ records }: PodContext, pod: Pod): Pod {
  const address = records.get(pod.metadata.uid ?? "")?.address;
  if (address === undefined) return pod;
  return { ...pod, status: { ...pod.status, podIP: address, podIPs: [{ ip: address }] } };
}

/** Numbers need no look into the image; a name does. */
async function imageUserOf(
  { images }: PodContext,
  image: ReadyImage,
  reference: string,
  signal: AbortSignal,
): Promise<ResolvedUser | undefined> {
  const { user } = image.config;
  if (image.isHostUsr || user === "") return { uid: 0, gid: 0, additionalGids: [] };
  if (/^\d+:\d+$/.test(user)) return resolveUser(user, { passwd: "", group: "" });
  const stored = images.find(reference);
  if (stored === undefined) return resolveUser(user, { passwd: "", group: "" });
  return resolveUser(user, await readUserFiles(stored, images.blobs, signal));
}
