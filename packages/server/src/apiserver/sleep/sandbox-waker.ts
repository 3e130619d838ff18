import {
  ApiError,
  annotationKeys,
  conflict,
  findCondition,
  formatTimestampMs,
  isPodOf,
  keyOf,
  nameHash,
  type Pod,
  pods,
  type Sandbox,
  sandboxes,
  sandboxReferenceOf,
  serviceUnavailable,
} from "@agent-sandbox/api";
import { type Clock, FairLimit } from "@agent-sandbox/kube";
import { type ReadableParts, StorageReader } from "../auth/storage-reader.ts";
import { type ApiRequest, type ApiResponse, isWholeBody } from "../request/api-request.ts";
import { listPrefix } from "../storage/object-key.ts";
import { isReportDue, reportIntervalMs, sleepStateOf } from "./sleep-state.ts";

/** What waking needs. */
export interface SandboxWakerOptions {
  readonly parts: ReadableParts;
  readonly clock: Clock;
  /** The server's own `handle`, so that the write is checked, stored and watched like a client's. */
  readonly handle: (request: ApiRequest) => Promise<ApiResponse>;
}

/** Names the Pod that a caller wants to enter. */
export interface PodName {
  readonly namespace: string;
  readonly name: string;
}

/** As long as the router holds a request, and as kubectl waits for a Pod of a Service. */
const holdLimitMs = 60_000;

/** Bound on callers that wait, for one sandbox and over all; more get 503 with Retry-After. */
const heldLimits = { perHolderMax: 64, totalMax: 256 };

/** A sandbox that is still asleep this long after a report has not seen it: its suspension was stamped later. */
const reportAgainMs = 1_000;

const retryAfterSeconds = 1;

/** Who reports that a caller wants to enter a sandbox. The caller may enter the Pod; that needs no right to write Sandboxes. */
const reporter = { username: "system:apiserver", groups: ["system:masters"] };

/**
 * Brings exec, attach and port-forward together with an awake sandbox, as the router does for requests.
 *
 * Invariant: a stream to a sandbox that falls asleep by itself is opened only after the API knows of activity younger than
 * a quarter of its timeout, so that it cannot be put to sleep between the look at it and the stream.
 */
export class SandboxWaker {
  readonly #options: SandboxWakerOptions;
  readonly #reader = new StorageReader();
  /** One report under way per sandbox: later callers share it. */
  readonly #pending = new Map<string, Promise<Sandbox | undefined>>();
  readonly #held = new FairLimit(heldLimits);

  constructor(options: SandboxWakerOptions) {
    this.#options = options;
    this.#reader.attach(options.parts);
  }

  /**
   * Resolves when the Pod can be entered as far as sleep is concerned; what else is wrong with it, the node answers. Throws
   * Conflict for a sandbox that its owner holds, and ServiceUnavailable for one that does not come in time.
   */
  async enter(pod: PodName, signal?: AbortSignal): Promise<void> {
    const sandbox = await this.#sandboxOf(pod);
    if (sandbox !== undefined) await this.#awaken(sandbox, signal);
  }

  /** Like `enter`, by the hash of the Sandbox's name, which is what a Service selects its Pod by. */
  async enterByHash(namespace: string, hash: string, signal?: AbortSignal): Promise<void> {
    const all = await this.#reader.list(sandboxes, namespace);
    const sandbox = all.find(({ metadata }) => nameHash(metadata.name) === hash);
    if (sandbox !== undefined) await this.#awaken(sandbox, signal);
  }

  /** The Sandbox that owns the Pod; where there is no Pod, the one that would make a Pod of this name. */
  async #sandboxOf({ namespace, name }: PodName): Promise<Sandbox | undefined> {
    const pod = await this.#reader.get(pods, { namespace, name });
    const ownerName = pod === undefined ? name : sandboxReferenceOf(pod)?.name;
    const sandbox =
      ownerName === undefined ? undefined : await this.#reader.get(sandboxes, { namespace, name: ownerName });
    if (sandbox === undefined || sandbox.metadata.deletionTimestamp !== undefined) return undefined;
    // A Pod that only says it is the Sandbox's is no door to it, unless it has the name under which the Sandbox's own is expected: that one may
    // have been made a moment ago and not be named by its Sandbox yet, and the caller is held until it is.
    return pod === undefined || isPodOf(pod, sandbox) || podNameOf(sandbox) === name ? sandbox : undefined;
  }

  async #awaken(found: Sandbox, signal: AbortSignal | undefined): Promise<void> {
    let sandbox = found;
    if (sleepStateOf(sandbox) === "awake" && isReportDue(sandbox, this.#options.clock.nowMs())) {
      const reported = await this.#report(sandbox);
      if (reported === undefined) return;
      sandbox = reported;
    }
    const state = sleepStateOf(sandbox);
    if (state === "awake" || state === "ended") return;
    if (state === "held") throw heldByOwner(sandbox);
    const key = keyOf(sandbox);
    if (!this.#held.tryTake(key)) throw serviceUnavailable("too many callers wait for sandboxes to wake", 1);
    try {
      await this.#wait(sandbox, signal);
    } finally {
      this.#held.give(key);
    }
  }

  /** Waits for the sandbox; a waiting caller counts as activity, however long the start takes. */
  async #wait(first: Sandbox, signal: AbortSignal | undefined): Promise<void> {
    const settled = Promise.withResolvers<void>();
    let last = first;
    let isOldPodLeaving = false;
    const look = (sandbox: Sandbox): void => {
      last = sandbox;
      const state = sleepStateOf(sandbox);
      if (state === "awake" && this.#hasPod(sandbox)) settled.resolve();
      else if (state === "held") settled.reject(heldByOwner(sandbox));
      // Woken while it falls asleep, a sandbox shows the end of the Pod that leaves before the start of the next one.
      else if (state === "asleep" || state === "awake") isOldPodLeaving = true;
      else if (state === "starting") isOldPodLeaving = false;
      else if (!isOldPodLeaving) settled.resolve();
    };
    const subscription = this.#follow(first, (sandbox) => (sandbox === undefined ? settled.resolve() : look(sandbox)));
    const onAbort = (): void => settled.reject(signal?.reason as Error);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    const stopLimit = this.#options.clock.setTimer(holdLimitMs, () => settled.reject(notReady(last)));
    const stopReports = this.#keepReporting(() => last, look, settled.reject);
    try {
      // What happened between the caller's look and the subscription must not be missed.
      const { namespace = "", name } = first.metadata;
      const now = await this.#reader.get(sandboxes, { namespace, name });
      if (now?.metadata.uid !== first.metadata.uid) settled.resolve();
      else look(now as Sandbox);
      await settled.promise;
    } finally {
      subscription[Symbol.dispose]();
      signal?.removeEventListener("abort", onAbort);
      stopLimit();
      stopReports();
    }
  }

  /** Whether the Pod is there to stay: its Sandbox may still call itself Ready when the Pod has begun to go. */
  #hasPod(sandbox: Sandbox): boolean {
    const { metadata } = sandbox;
    const { storage, registry } = this.#options.parts;
    const definition = registry.find("", pods.resource);
    const name = podNameOf(sandbox);
    const pod = definition && storage.get(definition, { namespace: metadata.namespace, name })?.object;
    return pod !== undefined && isPodOf(pod as Pod, sandbox) && pod.metadata.deletionTimestamp === undefined;
  }

  /** Calls back with each later state of one Sandbox, undefined when it is gone. */
  #follow({ metadata }: Sandbox, onChange: (sandbox: Sandbox | undefined) => void): Disposable {
    const { storage } = this.#options.parts;
    return storage.onWrite((definition, row) => {
      if (definition.group !== sandboxes.group || definition.resource !== sandboxes.resource) return;
      if (row.key !== `${listPrefix(definition, metadata.namespace)}${metadata.name}`) return;
      const sandbox = storage.read(definition, row) as Sandbox;
      if (sandbox.metadata.uid === metadata.uid) onChange(row.deleted ? undefined : sandbox);
    });
  }

  /** Reports at once and then as often as the sandbox could fall asleep again; call the result to stop. */
  #keepReporting(
    latest: () => Sandbox,
    look: (sandbox: Sandbox) => void,
    onFailure: (error: unknown) => void,
  ): () => void {
    const { clock } = this.#options;
    const intervalMs = Math.min(reportIntervalMs(latest()) ?? reportAgainMs, reportAgainMs);
    let stop = (): void => undefined;
    const again = (): void => {
      const sandbox = latest();
      const isWanted = sleepStateOf(sandbox) === "asleep" || isReportDue(sandbox, clock.nowMs());
      if (isWanted) this.#report(sandbox).catch(onFailure);
      stop = clock.setTimer(intervalMs, again);
      // A Pod may come back without any change of its Sandbox.
      look(sandbox);
    };
    again();
    return () => stop();
  }

  #report(sandbox: Sandbox): Promise<Sandbox | undefined> {
    const { uid = "" } = sandbox.metadata;
    const pending = this.#pending.get(uid);
    if (pending !== undefined) return pending;
    const report = this.#write(sandbox).finally(() => this.#pending.delete(uid));
    this.#pending.set(uid, report);
    return report;
  }

  /** Undefined: the Sandbox is gone, or another one has its name. */
  async #write({ metadata }: Sandbox): Promise<Sandbox | undefined> {
    const { namespace = "", name, uid } = metadata;
    const at = formatTimestampMs(this.#options.clock.nowMs());
    const { group, version, resource } = sandboxes;
    const response = await this.#options.handle({
      method: "PATCH",
      path: `/apis/${group}/${version}/namespaces/${namespace}/${resource}/${name}?fieldManager=agent-sandbox-apiserver`,
      headers: { "content-type": "application/merge-patch+json" },
      body: JSON.stringify({ metadata: { uid, annotations: { [annotationKeys.lastActivityAt]: at } } }),
      user: reporter,
    });
    const bytes = isWholeBody(response.body) ? Buffer.concat(response.body) : Buffer.alloc(0);
    const body = JSON.parse(bytes.toString()) as unknown;
    if (response.status < 300) return body as Sandbox;
    if (response.status === 404 || response.status === 409) return undefined;
    throw ApiError.fromStatus(body as never, response.status);
  }
}

/** The name of the Pod that a Sandbox has or will have. */
function podNameOf({ metadata }: Sandbox): string {
  return metadata.annotations?.[annotationKeys.podName] || metadata.name;
}

function heldByOwner({ metadata }: Sandbox): ApiError {
  const { name } = metadata;
  const why = `it is suspended by its owner; resume it with agent-sandbox resume ${name}`;
  return conflict({ group: sandboxes.group, resource: sandboxes.resource, name }, why);
}

function notReady({ metadata, status }: Sandbox): ApiError {
  const why = findCondition(status?.conditions, "Ready")?.message ?? "it has not been reconciled yet";
  return serviceUnavailable(
    `sandbox ${metadata.namespace ?? ""}/${metadata.name} is not ready yet: ${why}`,
    retryAfterSeconds,
  );
}
