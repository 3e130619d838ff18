import type { Pod, Sandbox } from "@agent-sandbox/api";
import { filesGenerationOf, formatTimestamp, uidOf } from "@agent-sandbox/api";
import { partHostId, podHostId } from "../container-id.ts";
import type { EnsureCgroupRequest } from "../host/cgroup.ts";
import type { RuntimeName, SandboxSize } from "../host/container.ts";
import { HostError } from "../host/host-error.ts";
import type { PrepareRootfsRequest } from "../host/rootfs.ts";
import { gatewayOf } from "../network/address-pool.ts";
import { podCgroup, podSize } from "../pod-spec/resources.ts";
import type { VolumePlan } from "../volumes/plan-volumes.ts";
import { pauseProcess } from "./pause-process.ts";
import type { PodContext } from "./pod-context.ts";
import { hostnameOf, hostsFile, resolvConf } from "./pod-names.ts";
import { type PodRecord, type RestoreRecord, storageUidOf } from "./pod-record.ts";
import { orRefused, planRestore } from "./pod-restore.ts";
import { isInjected, waitingLaunch } from "./sandboxd-launch.ts";
import { cloneOrigin, endedOf, planSnapshotStart, type SnapshotStart, type StartQuestion } from "./snapshot-start.ts";
import { pauseWritableBytes, stateDir } from "./state-dir.ts";
import { leaseholder, leaseMessage } from "./volume-leases.ts";

/** What a pod is prepared with. */
export interface Preparation {
  readonly runtime: RuntimeName;
  readonly plan: VolumePlan;
  /** The Sandbox whose layer and address it gets. Preconditions: it names the pod. */
  readonly sandbox: Sandbox | undefined;
  /** Root file systems of the containers that start first. */
  readonly roots: readonly PrepareRootfsRequest[];
}

/** Makes everything a pod needs before its first container: limits, address, rules, volumes, root file systems, and the pause container. */
export async function preparePod(
  context: PodContext,
  pod: Pod,
  preparation: Preparation,
  signal: AbortSignal,
): Promise<void> {
  const { host, records, rules, fresh } = context;
  const { plan, roots } = preparation;
  const reserved = await reserve(context, pod, preparation, signal);
  if (reserved.restore?.state === "failed") return;
  // Its volumes are written down: a Sandbox that falls asleep from here on sees that they are used.
  const holder = leaseholder(context, reserved, reserved.volumes);
  if (holder !== undefined) throw new HostError("busy", leaseMessage(holder));
  const record = await cloneOrigin(context, reserved, stateDirId(reserved), signal);
  if (record.restore?.state === "failed") return;
  const { slot, address } = record;
  if (slot === undefined || address === undefined) throw new Error(`bug: pod ${pod.metadata.name} has no address`);
  const isMadeAhead = isGivenAhead(pod, record);
  await Promise.all([
    host.ensureCgroup(cgroupFor(context, pod, record), signal),
    ...plan.volumes.map((volume) => host.ensureVolume(volume, signal)),
    ...plan.emptyDirs.map((dir) => host.ensureEmptyDir(dir, signal)),
    ...(isInjected(pod) && !isMadeAhead ? [host.ensureEmptyDir(stateDir(stateDirId(record)), signal)] : []),
    ...plan.files.map((files) => host.writeFiles(files, signal)),
    host.writeFiles(etcFiles(context, { pod, address, id: etcFilesId(storageUidOf(record)) }), signal),
    // Rules before processes: nothing ever runs without them, and a rule that is refused stops the pod here. A sandbox made ahead gets
    // its address, and its rules, with its container's start.
    ...(isMadeAhead ? [] : [host.assignSlot({ slot, address }, signal), rules.apply()]),
    ...roots.map((root) => host.prepareRootfs({ ...root, ...writableFor(record) }, signal)),
  ]);
  if (record.pauseId !== undefined && !isMadeAhead) {
    const isStarted = await orRefused(context, record, startPause(context, pod, record, signal));
    if (!isStarted) return;
  }
  // An agent that lost this line prepares again, which changes nothing; the first container's start writes it down.
  records.note({ ...(records.get(record.uid) ?? record), isPrepared: true });
  if (!isMadeAhead) fresh.pods.add(record.uid);
  for (const { id } of roots) fresh.roots.add(id);
}

/** Whether the pod needs a root container of its own besides what it names. */
export function needsPause(pod: Pod): boolean {
  return (pod.spec?.containers ?? []).length + (pod.spec?.initContainers ?? []).length > 1;
}

/** Whether the sandbox that a pod's container joins was made ahead, and waits for it. */
export function isGivenAhead(pod: Pod, { pauseId, restore }: Pick<PodRecord, "pauseId" | "restore">): boolean {
  return pauseId !== undefined && !needsPause(pod) && restore === undefined;
}

/** Without its limit of memory while memory is read: reading under a tight one takes ten times as long. */
function cgroupFor({ config }: PodContext, pod: Pod, { cgroup, restore }: PodRecord): EnsureCgroupRequest {
  const { memoryBytes, ...rest } = podCgroup(pod, { id: cgroup, limits: config.limits });
  return restore?.state === "restoring" || memoryBytes === undefined ? rest : { ...rest, memoryBytes };
}

/** Ends the sandbox made ahead that a pod of one container was given, if it has one: the container's next run makes its own. */
export async function leaveSandbox(
  { host, records, exits }: PodContext,
  pod: Pod,
  record: PodRecord,
  signal: AbortSignal,
): Promise<PodRecord> {
  const { pauseId, ...rest } = record;
  if (pauseId === undefined || needsPause(pod)) return record;
  await host.deleteContainer({ id: pauseId }, signal);
  exits.forget(pauseId);
  await host.releaseRootfs({ id: pauseId }, signal);
  await records.save(rest);
  return rest;
}

/** What a pod's sandbox says of its machine. */
export function sizeOf({ config, node }: Pick<PodContext, "config" | "node">, pod: Pod): SandboxSize {
  const { cpuMillis, memoryBytes } = node;
  return podSize(pod, { limits: config.limits, cpus: cpuMillis / 1000, memoryBytes });
}

/** The files volume with resolv.conf, hosts and hostname. */
export function etcFilesId(podUid: string): string {
  return partHostId(podUid, "node", "etc");
}

/** The emptyDir that the daemon writes logs and last words to. */
export function stateDirId(record: Pick<PodRecord, "uid" | "stateId" | "storageUid">): string {
  return record.stateId ?? partHostId(storageUidOf(record), "node", "state");
}

/** The layer that was made ahead for the pod's one container. */
function writableFor({ spareId }: PodRecord): Pick<PrepareRootfsRequest, "writableFrom"> {
  return spareId === undefined ? {} : { writableFrom: spareId };
}

/** Writes down what the pod will have before any of it is made. */
async function reserve(
  context: PodContext,
  pod: Pod,
  { runtime, plan, sandbox, roots }: Preparation,
  signal: AbortSignal,
): Promise<PodRecord> {
  const { records, slots, waiting, addresses, clock } = context;
  const uid = pod.metadata.uid ?? "";
  const before = records.get(uid);
  // A sandbox made ahead is connected once: after a preparation that was cut off it is not known how far that came.
  const known = before === undefined ? undefined : await leaveSandbox(context, pod, before, signal);
  const own = sandbox === undefined ? undefined : context.sandboxAddress(sandbox);
  const address = known?.address ?? own ?? addresses.allocate();
  if (address === undefined) throw new Error("no free address in the pod range");
  const start = known ?? (await startOf(context, { pod, sandbox, mounts: plan.mounts }, signal));
  const { restore, origin } = start;
  const ahead =
    known === undefined && restore === undefined && runtime === "runsc" && !needsPause(pod)
      ? waiting.take(sizeOf(context, pod).cpus)
      : undefined;
  const layerGeneration = known === undefined ? sandbox && filesGenerationOf(sandbox) : known.layerGeneration;
  const inherited = records.get(restore?.from ?? "");
  const storageUid = known?.storageUid ?? (inherited === undefined ? undefined : storageUidOf(inherited));
  const stateId = known?.stateId ?? ahead?.stateId ?? inherited?.stateId;
  const spareId = known?.spareId ?? ahead?.spareId;
  const slot = known?.slot ?? ahead?.slot ?? (await slots.take(signal));
  // Half made, half removed or removed by an agent that was killed meanwhile: a preparation that is repeated takes nothing for granted.
  if (known?.slot !== undefined) await context.host.ensureSlot({ slot }, signal);
  const record: PodRecord = {
    version: 1,
    uid,
    namespace: pod.metadata.namespace ?? "",
    name: pod.metadata.name,
    ...(sandbox !== undefined && { sandboxUid: uidOf(sandbox), sandboxName: sandbox.metadata.name }),
    ...(layerGeneration !== undefined && { layerGeneration }),
    runtime,
    slot,
    address,
    isPrepared: false,
    cgroup: known?.cgroup ?? ahead?.id ?? podHostId(uid),
    volumes: plan.volumes.map(({ id }) => id),
    emptyDirs: [
      ...plan.emptyDirs.map(({ id }) => id),
      ...(isInjected(pod) || stateId !== undefined
        ? [
            stateDirId({
              uid,
              ...(stateId !== undefined && { stateId }),
              ...(storageUid !== undefined && { storageUid }),
            }),
          ]
        : []),
    ],
    ...(stateId !== undefined && { stateId }),
    files: [...plan.files.map(({ id }) => id), etcFilesId(storageUid ?? uid)],
    roots: [...roots.map(({ id }) => id), ...(spareId === undefined ? [] : [spareId])],
    ...(spareId !== undefined && { spareId }),
    ...((needsPause(pod) || isRestoringRoot(restore)) && { pauseId: partHostId(uid, "node", "pause") }),
    ...(ahead !== undefined && { pauseId: ahead.id }),
    containers: known?.containers ?? { ...endedRuns(inherited), ...endedOf(context, uid, start) },
    startedAt: known?.startedAt ?? formatTimestamp(clock.nowMs()),
    ...(restore !== undefined && { restore }),
    ...(origin !== undefined && { origin }),
    ...(storageUid !== undefined && { storageUid }),
  };
  // On disk for good with the first container's start: after a loss of power nothing of this is left that a sweep would not find.
  await records.keep(record);
  return record;
}

/** What a pod of a Sandbox goes on from: a snapshot where it is the first, its own saved memory where there is any. */
async function startOf(context: PodContext, question: StartQuestion, signal: AbortSignal): Promise<SnapshotStart> {
  const { sandbox } = question;
  const start = await planSnapshotStart(context, question, signal);
  if (sandbox === undefined || start.origin !== undefined || start.restore !== undefined) return start;
  const restore = await planRestore(context, sandbox, signal);
  return restore === undefined ? {} : { restore };
}

/** Whether the saved sandbox had a root container that no container of the pod is: it was made ahead, or holds several. */
function isRestoringRoot(restore: RestoreRecord | undefined): boolean {
  return restore?.state === "restoring" && restore.root !== undefined;
}

/** Init containers have run before the memory was saved, and do not run again. */
function endedRuns(inherited: PodRecord | undefined): PodRecord["containers"] {
  return Object.fromEntries(Object.entries(inherited?.containers ?? {}).filter(([, { end }]) => end?.exitCode === 0));
}

function etcFiles(
  { config }: PodContext,
  { pod, address, id }: { readonly pod: Pod; readonly address: string; readonly id: string },
): Parameters<PodContext["host"]["writeFiles"]>[0] {
  const facts = {
    domain: config.clusterDomain,
    gateway: gatewayOf(config.podCidr),
    nodeResolvers: config.dns.resolvers,
    nodeSearches: config.dns.searches,
  };
  const file = (path: string, text: string): { path: string; contentBase64: string; mode: number } => ({
    path,
    contentBase64: Buffer.from(text).toString("base64"),
    mode: 0o644,
  });
  return {
    id,
    files: [
      file("resolv.conf", resolvConf(pod, facts)),
      file("hosts", hostsFile(pod, address, config.clusterDomain)),
      file("hostname", `${hostnameOf(pod)}\n`),
    ],
  };
}

async function startPause(context: PodContext, pod: Pod, record: PodRecord, signal: AbortSignal): Promise<void> {
  const { host, exits } = context;
  const id = record.pauseId ?? "";
  if (exits.states.get(id)?.status === "running") return;
  await host.prepareRootfs({ id, hostUsr: true, writableBytes: pauseWritableBytes }, signal);
  const { restore } = record;
  const isRestored = restore?.state === "restoring" && restore.root !== undefined;
  const state = await host.runContainer(
    {
      id,
      runtime: record.runtime,
      rootfs: id,
      readOnlyRootfs: true,
      ...(needsPause(pod) ? { process: pauseProcess, mounts: [] } : waitingLaunch(context.config.sandboxdPath)),
      ...(isRestored && { restoreFrom: { saved: restore.saved, container: restore.root ?? "" } }),
      hostname: hostnameOf(pod),
      ...(record.slot !== undefined && { slot: record.slot }),
      ...(record.runtime === "runsc" && { size: sizeOf(context, pod) }),
      cgroup: record.cgroup,
    },
    signal,
  );
  exits.watch(state);
}
