import { connect } from "node:net";
import type { Duplex } from "node:stream";
import type { Pod } from "@agent-sandbox/api";
import { namespacedKey } from "@agent-sandbox/api";
import type { Informer } from "@agent-sandbox/kube";
import type { MetricsRegistry } from "../../telemetry/metrics.ts";
import { FollowPaces } from "../logs/follow-pace.ts";
import { type LogRequest, readLogs } from "../logs/read-logs.ts";
import { readMachineUsage } from "../node-status/machine-usage.ts";
import { podMetricsOf } from "../node-status/pod-metrics.ts";
import { resourceMetricsOf, summaryOf, type UsageSample } from "../node-status/pod-usage.ts";
import { samplePods } from "../node-status/sample-pods.ts";
import { containerLog } from "../pods/container-log.ts";
import { servingContainer } from "../pods/daemon-watch.ts";
import { type LimitHit, limitHit } from "../pods/limit-hit.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { ContainerRecord, PodRecord } from "../pods/pod-record.ts";
import { isInjected, sandboxdPort } from "../pods/sandboxd-launch.ts";
import type { CommandOutcome } from "./command-outcome.ts";
import type { CommandRunner, CommandTarget } from "./command-runner.ts";
import { dialInside } from "./dial-inside.ts";
import { type KubeletBackend, KubeletError } from "./kubelet-backend.ts";
import type { ContainerRef, KubeletRoute } from "./kubelet-routes.ts";
import { openOutput, type RemoteCommand } from "./remote-command.ts";
import type { SandboxdClient, SandboxdRun } from "./sandboxd-client.ts";

/** Ports of the published clients; the daemon answers on them where nothing else listens. */
const fallbackPorts = new Set([8080, 8888, 9090]);

/** How long a port inside a sandbox may take to accept. */
const dialTimeoutMs = 10_000;

/** How a command ends whose container was taken away under it. */
const killed = { kind: "exited", exitCode: 137 } as const;

/** How long after its connections closed the end of a sandbox may still arrive from the helper. */
const endWithinMs = 2_000;

/** Whether a container is over whose connection was lost. */
async function endsSoon(end: AbortSignal): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, end.aborted ? 0 : endWithinMs);
  end.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
  return end.aborted;
}

/** The backend's parts. */
export interface NodeBackendOptions {
  readonly context: PodContext;
  readonly pods: Informer<Pod>;
  readonly runner: CommandRunner;
  readonly metrics: MetricsRegistry;
  /** The daemon at an address; undefined where none can be dialled. */
  readonly sandboxdAt: (run: SandboxdRun) => SandboxdClient | undefined;
}

/** What the HTTPS endpoint does, on this node's pods. */
export class NodeBackend implements KubeletBackend {
  readonly #options: NodeBackendOptions;
  readonly #paces = new FollowPaces();

  constructor(options: NodeBackendOptions) {
    this.#options = options;
  }

  assertRunning(ref: ContainerRef): void {
    this.#running(ref);
  }

  exec(
    ref: ContainerRef,
    { command, tty }: { command: readonly string[]; tty: boolean },
    remote: RemoteCommand,
  ): Promise<CommandOutcome> {
    if (command.length === 0) throw new KubeletError(400, "a command is required");
    const target = this.target(ref);
    return this.#whileRunning(target.hostId, remote, (bound) => this.#options.runner.exec(target, command, tty, bound));
  }

  attach(ref: ContainerRef, remote: RemoteCommand): Promise<CommandOutcome> {
    const target = this.target(ref);
    const { spec } = this.#pod(ref.namespace, ref.pod).object;
    // With `stdinOnce` the first session that ends takes the input with it; without, the next one goes on.
    const keepOpen = spec?.containers.find(({ name }) => name === ref.container)?.stdinOnce !== true;
    return this.#whileRunning(target.hostId, remote, async (bound) => {
      try {
        return await this.#attach(target, bound, keepOpen);
      } finally {
        if (!keepOpen && remote.stdin !== undefined && remote.signal.aborted) await this.#closeInput(target);
      }
    });
  }

  /** Ends the input of a container whose session broke off: the stream that carried it was cut, which says nothing of its end. */
  async #closeInput({ hostId, sandboxd }: CommandTarget): Promise<void> {
    if (this.#options.context.exits.endOf(hostId).aborted) return;
    const signal = AbortSignal.timeout(inputEndMs);
    await sandboxd?.writeStdin({ id: entrypointId, close: true }, { signal }).catch(() => undefined);
  }

  /** A command ends with its container, as by SIGKILL, also where the sandbox took the connection with it. */
  async #whileRunning(
    hostId: string,
    remote: RemoteCommand,
    work: (remote: RemoteCommand) => Promise<CommandOutcome>,
  ): Promise<CommandOutcome> {
    const end = this.#options.context.exits.endOf(hostId);
    const bound: RemoteCommand = {
      stdin: remote.stdin,
      stdout: remote.stdout,
      stderr: remote.stderr,
      onResize: (listener) => remote.onResize(listener),
      signal: AbortSignal.any([remote.signal, end]),
      finish: (outcome) => remote.finish(outcome),
      cut: () => remote.cut(),
    };
    try {
      const outcome = await work(bound);
      if (outcome.kind !== "failed" || !(await endsSoon(end))) return outcome;
      return await this.#killed(hostId, remote);
    } catch (error) {
      if (end.aborted && !remote.signal.aborted) return this.#killed(hostId, remote);
      throw error;
    }
  }

  /** How a command ended whose container was taken away under it; a limit that did so is also said where the command's errors go. */
  async #killed(hostId: string, remote: RemoteCommand): Promise<CommandOutcome> {
    const limit = await this.#limitOf(hostId, remote.signal);
    if (limit === undefined) return killed;
    (remote.stderr ?? remote.stdout)?.write(`agent-sandbox: ${limit.message} (${limit.reason})\n`);
    return { ...killed, limit };
  }

  async #limitOf(hostId: string, signal: AbortSignal): Promise<LimitHit | undefined> {
    const { context, pods } = this.#options;
    for (const record of context.records.all()) {
      const run = Object.values(record.containers).find(
        (candidate) => candidate.hostId === hostId || candidate.previousEnd?.hostId === hostId,
      );
      const pod = pods.get(namespacedKey(record.namespace, record.name));
      if (run === undefined || pod === undefined) continue;
      const end = [run.end, run.previousEnd].find((candidate) => candidate?.hostId === hostId);
      if (end === undefined) return limitHit(context, pod, { record, run }, signal);
      if (end.reason === "OOMKilled" || end.reason === "PidLimitReached")
        return { reason: end.reason, message: end.message?.split("\n")[0] ?? end.reason };
    }
    return undefined;
  }

  async #attach({ sandboxd }: CommandTarget, remote: RemoteCommand, keepOpen: boolean): Promise<CommandOutcome> {
    if (sandboxd === undefined)
      return { kind: "failed", message: "attach needs the daemon, which this pod runs without" };
    const id = entrypointId;
    const { process } = await sandboxd.get({ id }, { signal: remote.signal });
    if (remote.stdin !== undefined)
      void sandboxd.streamStdin(inputOf(id, remote.stdin, keepOpen), { signal: remote.signal }).catch(() => undefined);
    remote.onResize((size) => void sandboxd.resize({ id, size }).catch(() => undefined));
    const request = { id, fromOffset: process?.outputEnd ?? 0n };
    const { stdout, stderr } = openOutput(remote);
    for await (const { event } of sandboxd.attach(request, { signal: remote.signal })) {
      if (event.case === "stdout") await stdout?.send(event.value.data);
      else if (event.case === "stderr") await (stderr ?? stdout)?.send(event.value.data);
      else if (event.case === "exit") return { kind: "exited", exitCode: event.value.code };
    }
    return { kind: "failed", message: "the sandbox ended before the container did" };
  }

  async dial(
    { namespace, pod }: { namespace: string; pod: string },
    port: number,
    signal: AbortSignal,
  ): Promise<Duplex> {
    const { record, object } = this.#pod(namespace, pod);
    if (record.address === undefined || !record.isPrepared)
      throw new KubeletError(400, `pod ${namespace}/${pod} is not running`);
    this.#assertAwake(record);
    const stream = await dialPod(record.address, port, { signal, hasDaemon: isInjected(object) });
    const { exits } = this.#options.context;
    endWith(
      stream,
      Object.values(record.containers).map(({ hostId }) => exits.endOf(hostId)),
    );
    return stream;
  }

  logs(
    { ref, options, previous }: Extract<KubeletRoute, { kind: "logs" }>,
    signal: AbortSignal,
  ): AsyncIterable<Buffer> {
    const { context } = this.#options;
    const { record, object } = this.#pod(ref.namespace, ref.pod);
    const run = record.containers[ref.container];
    if (run === undefined)
      throw new KubeletError(
        400,
        `container "${ref.container}" in pod "${ref.pod}" is waiting to start: ContainerCreating`,
      );
    if (previous && run.attempt === 0)
      throw new KubeletError(400, `previous terminated container "${ref.container}" in pod "${ref.pod}" not found`);
    const attempt = previous ? run.attempt - 1 : run.attempt;
    const { path, format } = containerLog(context, object, { container: ref.container, attempt });
    const isLive = (): boolean => !previous && context.exits.states.get(run.hostId)?.status === "running";
    return this.#followed(record.uid, { path, options: { ...options, format }, isLive, signal });
  }

  async *#followed(pod: string, request: LogRequest): AsyncGenerator<Buffer> {
    using pace = this.#paces.open(pod);
    yield* readLogs({ ...request, pace });
  }

  async summary(): Promise<unknown> {
    const { context } = this.#options;
    const machine = readMachineUsage(context.clock.nowMs());
    return summaryOf(context.config.nodeName, await this.samples(), machine);
  }

  async resourceMetrics(): Promise<string> {
    const machine = readMachineUsage(this.#options.context.clock.nowMs());
    return resourceMetricsOf(await this.samples(), machine);
  }

  async podMetrics(): Promise<string> {
    return podMetricsOf(await this.samples());
  }

  metrics(): Promise<string> {
    return this.#options.metrics.metrics();
  }

  pods(): unknown {
    return { apiVersion: "v1", kind: "PodList", metadata: {}, items: this.#options.pods.list() };
  }

  /** Use of every running pod. */
  samples(): Promise<UsageSample[]> {
    const { context, pods } = this.#options;
    return samplePods(context, pods);
  }

  /** The ways into a running container. */
  target(ref: ContainerRef): CommandTarget {
    const { run, record, object } = this.#running(ref);
    const serves = isInjected(object) && servingContainer(object) === ref.container && record.address !== undefined;
    const sandboxd = serves
      ? this.#options.sandboxdAt({ address: record.address ?? "", hostId: run.hostId })
      : undefined;
    return { hostId: run.hostId, process: run.process, ...(sandboxd !== undefined && { sandboxd }) };
  }

  #pod(namespace: string, name: string): { record: PodRecord; object: Pod } {
    const object = this.#options.pods.get(namespacedKey(namespace, name));
    const record = this.#options.context.records.get(object?.metadata.uid ?? "");
    if (object === undefined || record === undefined)
      throw new KubeletError(404, `pod "${name}" in namespace "${namespace}" is not on this node`);
    return { record, object };
  }

  /** Nothing inside answers while it stands still; a caller that would wait has no way to tell why. */
  #assertAwake({ uid, namespace, name }: PodRecord): void {
    if (this.#options.context.sleep.isStill(uid))
      throw new KubeletError(503, `pod ${namespace}/${name} is asleep; resume its Sandbox first`);
  }

  #running(ref: ContainerRef): { run: ContainerRecord; record: PodRecord; object: Pod } {
    const { record, object } = this.#pod(ref.namespace, ref.pod);
    const run = record.containers[ref.container];
    if (run === undefined || run.end !== undefined)
      throw new KubeletError(404, `container not found ("${ref.container}")`);
    this.#assertAwake(record);
    return { run, record, object };
  }
}

/** What the daemon calls the container's own program. */
const entrypointId = "entrypoint";

/** The daemon answers within milliseconds; a session that has ended waits no longer. */
const inputEndMs = 5_000;

async function* inputOf(
  id: string,
  stdin: AsyncIterable<Uint8Array>,
  keepOpen: boolean,
): AsyncGenerator<{ id: string; data: Uint8Array; keepOpen: boolean }> {
  yield { id, data: new Uint8Array(), keepOpen };
  for await (const data of stdin) yield { id: "", data, keepOpen };
}

function dialTcp(address: string, port: number, signal: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, allowHalfOpen: true });
    const abort = (): void => void socket.destroy(new Error("cancelled"));
    signal.addEventListener("abort", abort, { once: true });
    socket.setTimeout(dialTimeoutMs, () =>
      socket.destroy(new Error(`port ${port} did not accept within ${dialTimeoutMs} ms`)),
    );
    socket.once("connect", () => {
      socket.setTimeout(0);
      socket.setNoDelay(true);
      signal.removeEventListener("abort", abort);
      resolve(socket);
    });
    socket.once("error", (error) => {
      signal.removeEventListener("abort", abort);
      reject(error);
    });
  });
}

async function dialPod(
  address: string,
  port: number,
  { signal, hasDaemon }: { readonly signal: AbortSignal; readonly hasDaemon: boolean },
): Promise<Duplex> {
  try {
    return await dialTcp(address, port, signal);
  } catch (error) {
    const isRefused = (error as NodeJS.ErrnoException).code === "ECONNREFUSED";
    if (!isRefused || !hasDaemon) throw error;
    const inside = await dialInside(address, port, signal);
    if (inside !== undefined) return inside;
    if (!fallbackPorts.has(port)) throw error;
    return dialTcp(address, sandboxdPort, signal);
  }
}

/** Ends a connection with the last of some containers: a network that is taken away closes nothing by itself. */
function endWith(stream: Duplex, ends: readonly AbortSignal[]): void {
  const onEnd = (): void => {
    if (ends.every(({ aborted }) => aborted)) stream.destroy();
  };
  // A Pod may have ended while it was dialled; who has no containers at all has none to end with.
  if (ends.length > 0) onEnd();
  for (const end of ends) end.addEventListener("abort", onEnd, { once: true });
  stream.once("close", () => {
    for (const end of ends) end.removeEventListener("abort", onEnd);
  });
}
