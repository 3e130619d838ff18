import type { Container, Pod } from "@agent-sandbox/api";
import { formatTimestamp, servicesOf } from "@agent-sandbox/api";
import { delay } from "@agent-sandbox/kube";
import { containerHostId, partHostId } from "../container-id.ts";
import type { ContainerMount, ContainerProcess, ContainerState } from "../host/container.ts";
import { HostError } from "../host/host-error.ts";
import type { PrepareRootfsRequest } from "../host/rootfs.ts";
import type { RestoreSource } from "../host/saved-state.ts";
import type { ReadyImage } from "../images/image-state.ts";
import { quantityValue } from "../pod-spec/resources.ts";
import { type RunningContainer, startProbes } from "./container-probes.ts";
import { type DaemonRun, servesDaemon, servingContainer } from "./daemon-watch.ts";
import { fieldPathOf } from "./field-path.ts";
import { keptLayerKey } from "./kept-layer.ts";
import { runPostStart } from "./lifecycle-hooks.ts";
import { limitCounts } from "./limit-hit.ts";
import type { PodContext } from "./pod-context.ts";
import { hostnameOf } from "./pod-names.ts";
import { type ContainerRecord, type PodRecord, withContainer } from "./pod-record.ts";
import { orRefused, restoreSourceOf, watchRestore } from "./pod-restore.ts";
import { isGivenAhead, leaveSandbox, sizeOf, stateDirId } from "./prepare-pod.ts";
import { countCrash } from "./restart-backoff.ts";
import { bindsPublishedPorts, isInjected, sandboxdLaunch, sandboxdPort } from "./sandboxd-launch.ts";

/** Everything decided about one start of a container. */
export interface StartRequest {
  readonly pod: Pod;
  readonly container: Container;
  readonly attempt: number;
  readonly crashes: number;
  readonly image: ReadyImage;
  readonly process: ContainerProcess;
  readonly mounts: readonly ContainerMount[];
}

/** Starts one run of a container. A program that cannot be started ends the run; a failure of the machine is thrown. */
export async function startContainer(context: PodContext, asked: StartRequest, signal: AbortSignal): Promise<void> {
  const { records, events } = context;
  const { pod, container } = asked;
  const uid = pod.metadata.uid ?? "";
  const known = records.get(uid);
  if (known === undefined) throw new Error(`bug: pod ${pod.metadata.name} was not prepared`);
  const restoreFrom = restoreSourceOf(known, container.name);
  // What goes on from memory is the run that was saved, and writes on where that wrote.
  const saved = restoreFrom === undefined ? undefined : known.restore?.runs[container.name];
  const request = saved === undefined ? asked : { ...asked, attempt: saved.attempt };
  const before = await sandboxFor(context, request, known, signal);
  const counted = request.attempt > 0 ? await limitCounts(context, before.cgroup, signal) : undefined;
  const run: ContainerRecord = {
    ...newRun(request, before.containers[container.name]),
    ...(counted !== undefined && { limitsBefore: counted }),
  };
  await removePrevious(context, before, container.name, signal);
  await records.keep(withContainer(before, run));
  const fieldPath = fieldPathOf(pod, container);
  try {
    const state = await launch(context, { request, record: before, run, restoreFrom }, signal);
    context.exits.watch(state);
    // What is written down meanwhile does not delay its answer.
    void watchDaemon(context, { pod, container, hostId: run.hostId, hasSaidSo: state.serving === true });
    const current = records.get(uid) ?? before;
    await records.keep(withContainer(current, { ...run, startedAt: wholeSeconds(state.startedAt) }));
    // After a loss of power it is still known that this has run; no caller waits for the disk until then.
    records
      .settle(uid)
      .catch((error: unknown) => context.logger.error({ err: error, uid }, "record is not on disk for good"));
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
    if (restoreFrom !== undefined) {
      await records.save(before);
      await orRefused(context, before, Promise.reject(error));
      return;
    }
    events.record({ object: pod, type: "Warning", reason: "Failed", message: `Error: ${error.message}`, fieldPath });
    if (error.blame === "system" || (error.code === "busy" && isGivenAhead(pod, before))) {
      // The run never began: the next pass tries again from where it was. A sandbox made ahead is connected once: how far that came is not known,
      // and one whose connection was cut off is busy for good.
      await records.save(before);
      await leaveSandbox(context, pod, before, signal);
      throw error;
    }
    await records.save(withContainer(before, startFailed(run, error, context.clock.nowMs())));
    return;
  }
  events.record({ object: pod, type: "Normal", reason: "Created", message: `Container created`, fieldPath });
  events.record({ object: pod, type: "Normal", reason: "Started", message: `Container started`, fieldPath });
  startProbes(context, { pod, container, hostId: run.hostId });
  if (restoreFrom !== undefined) void watchRestore(context, pod);
  else runPostStart(context, { pod, container, hostId: run.hostId });
  await firstAnswer(context, { pod, container, hostId: run.hostId });
}

/** A sandbox made ahead is for a container's first run; every other one is as fresh as its container. */
async function sandboxFor(
  context: PodContext,
  { pod, attempt, container }: StartRequest,
  record: PodRecord,
  signal: AbortSignal,
): Promise<PodRecord> {
  if (restoreSourceOf(record, container.name) !== undefined) return record;
  const isRunning = context.exits.states.get(record.pauseId ?? "")?.status === "running";
  return attempt === 0 && isRunning ? record : leaveSandbox(context, pod, record, signal);
}

/** How long a pass waits for the daemon of what it started; a slower one is waited for without a worker. */
const answerInPassMs = 2_000;

async function firstAnswer(context: PodContext, running: RunningContainer): Promise<void> {
  const answer = watchDaemon(context, running);
  if (answer === undefined) return;
  const stop = new AbortController();
  await Promise.race([answer, delay(context.clock, answerInPassMs, stop.signal).catch(() => undefined)]);
  stop.abort();
}

/** Begins to wait until the daemon of a run that serves can be reached; undefined for a run that does not. */
export function watchDaemon(
  context: PodContext,
  { pod, container, hostId, hasSaidSo = false }: RunningContainer & { readonly hasSaidSo?: boolean },
): Promise<void> | undefined {
  const address = context.records.get(pod.metadata.uid ?? "")?.address;
  if (!servesDaemon(pod, container) || address === undefined) return undefined;
  const { namespace = "", name } = pod.metadata;
  const message = `the daemon inside does not answer on port ${sandboxdPort}`;
  const fieldPath = fieldPathOf(pod, container);
  const run: DaemonRun = {
    hostId,
    address,
    hasSaidSo,
    over: AbortSignal.any([context.signal, context.exits.endOf(hostId)]),
    onAnswer: () => context.wake({ namespace, name }),
    onOverdue: () => context.events.record({ object: pod, type: "Warning", reason: "Unhealthy", message, fieldPath }),
  };
  return context.daemons.watch(run);
}

/** What the names of files end with that the runtime writes a container's output to. */
export const rawLogSuffixes = { stdout: ".out", stderr: ".err" } as const;

/** The file below the pod's state directory that a run's log is in. */
export function runName(container: string, attempt: number): string {
  return `${container}-${attempt}`;
}

function newRun(
  { pod, container, attempt, crashes, image, process }: StartRequest,
  previous: ContainerRecord | undefined,
): ContainerRecord {
  const uid = pod.metadata.uid ?? "";
  const previousEnd = previous?.end ?? (previous?.attempt === attempt ? previous.previousEnd : undefined);
  return {
    name: container.name,
    attempt,
    crashes,
    hostId: containerHostId(uid, container.name, attempt),
    rootfsId: partHostId(uid, "rootfs", container.name),
    image: container.image ?? "",
    imageId: image.reference,
    process,
    ...(previousEnd !== undefined && { previousEnd }),
  };
}

async function removePrevious(
  context: PodContext,
  record: PodRecord,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  const previous = record.containers[name];
  if (previous === undefined) return;
  await context.host.deleteContainer({ id: previous.hostId }, signal);
  context.exits.forget(previous.hostId);
  // A pod of its own starts every run from the image; a Sandbox keeps what was written.
  if (record.sandboxUid !== undefined) return;
  context.fresh.roots.delete(previous.rootfsId);
  await context.host.releaseRootfs({ id: previous.rootfsId }, signal);
}

interface Launch {
  readonly request: StartRequest;
  readonly record: PodRecord;
  readonly run: ContainerRecord;
  readonly restoreFrom: RestoreSource | undefined;
}

async function launch(
  context: PodContext,
  { request, record, run, restoreFrom }: Launch,
  signal: AbortSignal,
): Promise<ContainerState> {
  const { host, fresh, rules } = context;
  const { pod, container } = request;
  const { slot, address } = record;
  const isRoot = record.pauseId === undefined;
  const hasRoot = fresh.roots.delete(run.rootfsId);
  const hasAddress = fresh.pods.delete(record.uid);
  await Promise.all([
    ...(hasRoot ? [] : [host.prepareRootfs(rootfsOf(context, record, request), signal)]),
    // The runtime takes the address out of the namespace at every start and does not put it back. Rules that were refused while the pod joined a
    // sandbox made ahead are not in force yet; where nothing has changed, this asks the host for nothing.
    ...(isRoot && !hasAddress && slot !== undefined && address !== undefined
      ? [host.assignSlot({ slot, address }, signal), rules.apply()]
      : []),
  ]);
  const wrapped = wrap(context, request, { record, run });
  const logBase = `sandboxes/${record.uid}/${runName(container.name, run.attempt)}`;
  const connects = isGivenAhead(pod, record) && slot !== undefined && address !== undefined;
  const isRuleless = new AbortController();
  const ruled = connects ? inForce(context, isRuleless) : undefined;
  const running = host.runContainer(
    {
      id: run.hostId,
      runtime: record.runtime,
      rootfs: run.rootfsId,
      ...(container.securityContext?.readOnlyRootFilesystem === true && { readOnlyRootfs: true }),
      process: wrapped.process,
      mounts: wrapped.mounts,
      cgroup: record.cgroup,
      ...(isRoot ? { hostname: hostnameOf(pod), ...(slot !== undefined && { slot }) } : {}),
      ...(record.pauseId !== undefined && { sandboxId: record.pauseId }),
      ...(isRoot && record.runtime === "runsc" && { size: sizeOf(context, pod) }),
      ...(connects && {
        connect: { slot, address, hostname: hostnameOf(pod), memoryBytes: sizeOf(context, pod).memoryBytes },
      }),
      // The daemon that goes on from memory has begun its program, and says nothing on its output.
      ...(isInjected(pod)
        ? restoreFrom === undefined && { handshake: true }
        : { stdoutPath: `${logBase}${rawLogSuffixes.stdout}` }),
      ...(restoreFrom !== undefined && { restoreFrom }),
      stderrPath: `${logBase}${rawLogSuffixes.stderr}`,
    },
    AbortSignal.any([signal, isRuleless.signal]),
  );
  const [state] = await Promise.all([running, ruled]);
  return state;
}

/** Puts the rules of a sandbox made ahead in force while its container is started; the helper lets no program run before. What is refused ends the start. */
async function inForce({ rules }: PodContext, isRuleless: AbortController): Promise<void> {
  try {
    await rules.apply();
  } catch (error) {
    isRuleless.abort(error);
    throw error;
  }
}

/** The root file system of a container. */
export function rootfsOf(
  { config }: PodContext,
  { uid, sandboxUid, layerGeneration }: Pick<PodRecord, "uid" | "sandboxUid" | "layerGeneration">,
  { container, image }: Pick<StartRequest, "container" | "image">,
): PrepareRootfsRequest {
  return {
    id: partHostId(uid, "rootfs", container.name),
    ...(image.isHostUsr ? { hostUsr: true } : { layers: image.layers ?? [] }),
    writableBytes: writableBytes(container, config.limits.podDiskBytes),
    ...(sandboxUid !== undefined && { keepKey: keptLayerKey(sandboxUid, container.name, layerGeneration) }),
  };
}

function wrap(
  { config }: PodContext,
  { pod, container, process, mounts }: StartRequest,
  { record, run }: Pick<Launch, "record" | "run">,
): Pick<StartRequest, "process" | "mounts"> {
  if (!isInjected(pod)) return { process, mounts };
  const wrapped = sandboxdLaunch({
    process,
    sandboxdPath: config.sandboxdPath,
    stateId: stateDirId(record),
    runName: runName(container.name, run.attempt),
    isServing: servingContainer(pod) === container.name,
    bindsPublishedPorts: bindsPublishedPorts(pod),
    messagePath: container.terminationMessagePath ?? "/dev/termination-log",
    hasTerminal: container.tty === true,
    hasStdin: container.stdin === true,
    services: servicesOf(pod.metadata),
  });
  return { process: wrapped.process, mounts: [...wrapped.mounts, ...mounts] };
}

function writableBytes(container: Container, defaultBytes: number): number {
  const limit = container.resources?.limits?.["ephemeral-storage"];
  return limit === undefined ? defaultBytes : Math.max(16 * 2 ** 20, Math.floor(quantityValue(limit)));
}

function startFailed(run: ContainerRecord, error: HostError, nowMs: number): ContainerRecord {
  const finishedAt = formatTimestamp(nowMs);
  return {
    ...run,
    crashes: countCrash(run.crashes, 0),
    end: {
      exitCode: 128,
      reason: "StartError",
      message: error.message.slice(0, 4096),
      startedAt: finishedAt,
      finishedAt,
      hostId: run.hostId,
    },
  };
}

function wholeSeconds(time: string): string {
  return formatTimestamp(Date.parse(time));
}
