import type { Container, OwnerReference, Pod, PodOwner, Sandbox, Service } from "@agent-sandbox/api";
import { standingWishOf, uidOf } from "@agent-sandbox/api";
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
import { storageUidOf, withoutUnbegun } from "./pod-record.ts";
import { inheritedBy } from "./pod-restore.ts";
import { settleSleep } from "./pod-sleep.ts";
import { etcFilesId } from "./prepare-pod.ts";
import { type NodeLimits, refusalOf } from "./refusal.ts";
import type { StartRequest } from "./start-container.ts";
import { leaseholder, leaseMessage } from "./volume-leases.ts";

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
  const record = written === undefined ? undefined : withoutUnbegun(written, (id) => exits.hasBegun(id));
  if (record !== undefined) await settleSleep(context, record, signal);
  const refusal = refusalOf(pod, limits);
  const owner = context.ownerOf(pod);
  const unproven = owner.kind === "unproven" && record?.isPrepared !== true ? owner.reference : undefined;
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
  const storage = storageUid(context, pod, owner);
  const planned = planVolumes({
    pod,
    storageUid: storage,
    sources,
    claim: objects.claim,
    emptyDirBytesDefault: context.config.limits.podDiskBytes,
  });
  const volumes = record?.isPrepared === true ? planned : orLeased(context, { pod, owner, planned });
  const question = { pod, objects, services, storageUid: storage };
  const { starts, configObstacles } =
    isQuiet || !volumes.ok
      ? noStarts
      : await configureAll(context, { ...question, mounts: volumes.plan.mounts }, { all, images }, signal);
  const probes = new Map<string, ProbeVerdict>();
  for (const { name } of all) {
    const verdict = runners.get(record?.containers[name]?.hostId ?? "")?.verdict();
    if (verdict !== undefined) probes.set(name, verdict);
  }
  const state = context.sleep.of(uid);
  const isSaved = state.saved !== undefined;
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
    // Only the pod that its Sandbox names is asked for anything.
    sleep: { wish: owner.kind === "proven" ? standingWishOf(owner.sandbox, pod, isSaved) : undefined, state },
    ...measured(context, uid),
    nodeAddress: config.nodeAddress,
    nowMs: clock.nowMs(),
  };
  return { observed, objects, volumes, starts, ...(owner.kind === "proven" && { sandbox: owner.sandbox }) };
}

/** What the node's loops have found of a pod. */
function measured({ fullDisks, memory }: PodContext, uid: string): Pick<ObservedPod, "diskFull" | "memory"> {
  const [diskFull, use] = [fullDisks.get(uid), memory.of(uid)];
  return { ...(diskFull !== undefined && { diskFull }), ...(use !== undefined && { memory: use }) };
}

type Starts = ReadonlyMap<string, Pick<StartRequest, "process" | "mounts" | "image">>;

interface Configured {
  readonly starts: Starts;
  readonly configObstacles: ReadonlyMap<string, Obstacle>;
}

const noStarts: Configured = { starts: new Map(), configObstacles: new Map() };

/** Configures every container whose image is there. */
async function configureAll(
  context: PodContext,
  question: Omit<ConfigureQuestion, "container" | "image">,
  { all, images }: { readonly all: readonly Container[]; readonly images: ReadonlyMap<string, ImageState> },
  signal: AbortSignal,
): Promise<Configured> {
  const configObstacles = new Map<string, Obstacle>();
  const starts = new Map<string, Pick<StartRequest, "process" | "mounts" | "image">>();
  for (const container of all) {
    const image = images.get(container.name);
    if (image?.kind !== "ready") continue;
    const start = await configure(context, { ...question, container, image: image.image }, signal);
    if (start.ok) starts.set(container.name, start.start);
    else configObstacles.set(container.name, { reason: "CreateContainerConfigError", message: start.message });
  }
  return { starts, configObstacles };
}

/** What a pod's directories are named by: those of the hibernated pod that it is restored from are taken over. */
function storageUid(context: PodContext, pod: Pod, owner: PodOwner): string {
  const uid = pod.metadata.uid ?? "";
  const record = context.records.get(uid);
  if (record !== undefined) return storageUidOf(record);
  const kept = owner.kind === "proven" ? inheritedBy(context, owner.sandbox) : undefined;
  return kept === undefined ? uid : storageUidOf(kept);
}

/** The plan, unless a volume of it is kept for a Sandbox that sleeps. */
function orLeased(
  context: PodContext,
  { pod, owner, planned }: { readonly pod: Pod; readonly owner: PodOwner; readonly planned: VolumePlanResult },
): VolumePlanResult {
  if (!planned.ok) return planned;
  const own = { uid: pod.metadata.uid ?? "", ...(owner.kind === "proven" && { sandboxUid: uidOf(owner.sandbox) }) };
  const ids = planned.plan.volumes.map(({ id }) => id);
  const holder = leaseholder(context, own, ids);
  return holder === undefined ? planned : { ok: false, message: leaseMessage(holder) };
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
  readonly storageUid: string;
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
    etcFilesId: etcFilesId(question.storageUid),
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
