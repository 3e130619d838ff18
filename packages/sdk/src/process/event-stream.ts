import { isSandboxError, type Limit, SandboxError } from "../errors/sandbox-error.ts";
import { isUnsent } from "../errors/unsent.ts";
import { fromBase64 } from "../plane/base64.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
import { type StartDeadline, startDeadline } from "./start-deadline.ts";
import {
  attachType,
  eventType,
  processService,
  startType,
  type WireEvent,
  type WireExit,
  type WireOutput,
  type WireProcess,
  type WireSpec,
} from "./wire.ts";

/** What a process does, in the order in which it did it. */
export type ProcessEvent =
  | { readonly kind: "started"; readonly process: WireProcess }
  | { readonly kind: "stdout" | "stderr"; readonly bytes: Uint8Array }
  | { readonly kind: "dropped"; readonly bytes: number }
  | { readonly kind: "exit"; readonly exit: WireExit };

/** Where a stream of events begins. */
export type EventSource =
  | {
      readonly kind: "start";
      readonly spec: WireSpec;
      readonly idempotencyKey: string;
      readonly killOnDisconnect: boolean;
      /** Keep it running under this name. */
      readonly service?: string;
    }
  | { readonly kind: "attach"; readonly id: string; readonly fromOffset: number };

/** How to follow events. */
export interface FollowOptions {
  readonly client: ConnectClient;
  readonly source: EventSource;
  readonly signal?: AbortSignal | undefined;
  /** Waits before a new attempt; rejects with the signal's reason. */
  readonly pause: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  readonly findEnd?: FindEnd | undefined;
}

/** An end of a sandbox's containers. */
export interface ContainerEnd {
  /** The limit that caused it, where one did. */
  readonly limit?: Limit | undefined;
  /** What the Sandbox's condition says. */
  readonly message: string;
}

/** What is known of an end that is looked for. */
export interface EndQuestion {
  /** When the process was started, or the attempt to do so began. */
  readonly sinceMs: number;
  /**
   * `lost`: the connection broke, perhaps for another reason. `gone`: a daemon answers that does not know the process, so that its container has
   * ended.
   */
  readonly kind: "lost" | "gone";
}

/** Finds the end of the sandbox's containers since a moment; undefined where there was none, or it cannot be found out. */
export type FindEnd = (question: EndQuestion) => Promise<ContainerEnd | undefined>;

// Nine attempts, doubling from 25 ms, span some twelve seconds: longer than a router takes to start again.
const attemptsMax = 9;
const pauseFirstMs = 25;
/** A router holds who attaches to a sandbox that starts again; after this long the sandbox's conditions are looked at again. */
const attachLimitMs = 5_000;
/** However attempts fail, they end this long after the connection was lost. */
const lostLimitMs = 30_000;

/**
 * Follows a process to its exit across lost connections. A start whose answer was lost is repeated under the same key,
 * which the sandbox answers with the process that it started the first time; later losses attach behind the last byte
 * seen. So no command ever runs twice, and no output is passed on twice. A process ends with its container: for memory, it has the
 * exit that SIGKILL gives and the reason; for any other cause `process-ended` is thrown.
 */
export async function* followProcess(options: FollowOptions): AsyncGenerator<ProcessEvent> {
  const state = new FollowState(options);
  for (;;) {
    try {
      for await (const event of state.open()) {
        const known = state.read(event);
        if (known !== undefined) yield known;
        if (known?.kind === "exit") return;
      }
      throw new SandboxError("connection-lost", "the stream ended before the process did");
    } catch (error) {
      const exit = await state.afterFailure(error);
      if (exit !== undefined) return yield exit;
    }
  }
}

/** How far a process has been followed. */
class FollowState {
  readonly #options: FollowOptions;
  #source: EventSource;
  #offset: number;
  #hasStarted = false;
  #attempts = 0;
  #lostSinceMs: number | undefined;
  /** When the first start was sent that may have been carried out. */
  #firstSentMs: number | undefined;
  #attemptMs = 0;
  #attach: StartDeadline | undefined;
  readonly #sinceMs = Date.now();

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#source = options.source;
    this.#offset = options.source.kind === "attach" ? options.source.fromOffset : 0;
  }

  /** The next connection. */
  open(): AsyncGenerator<WireEvent> {
    this.#attemptMs = Date.now();
    const { signal } = this.#options;
    this.#attach = this.#hasStarted ? startDeadline(attachLimitMs, signal) : undefined;
    const firstSentMsAgo = this.#firstSentMs === undefined ? undefined : Date.now() - this.#firstSentMs;
    return openStream({ ...this.#options, signal: this.#attach?.signal ?? signal }, this.#source, firstSentMsAgo);
  }

  /** An event that was not passed on before. */
  read(wire: WireEvent): ProcessEvent | undefined {
    this.#attempts = 0;
    this.#lostSinceMs = undefined;
    this.#attach?.met();
    const known = readEvent(wire, this.#offset);
    if (known === undefined) return undefined;
    if (known.event.kind === "started") {
      this.#source = { kind: "attach", id: known.event.process.id ?? "", fromOffset: this.#offset };
      if (this.#hasStarted) return undefined;
      this.#hasStarted = true;
    }
    this.#offset = known.offset;
    return known.event.kind === "dropped" && known.event.bytes === 0 ? undefined : known.event;
  }

  /** Waits for the next attempt; the exit, where there is none to wait for. */
  async afterFailure(error: unknown): Promise<ProcessEvent | undefined> {
    this.#attach?.met();
    this.#options.signal?.throwIfAborted();
    const { isGone, mayFollowAgain } = this.#judge(error);
    if (!isGone && !mayFollowAgain) throw error;
    this.#attempts += 1;
    this.#lostSinceMs ??= Date.now();
    if (!this.#hasStarted && !isUnsent(error)) this.#firstSentMs ??= this.#attemptMs;
    const end = await this.#find(isGone ? "gone" : "lost");
    if (isGone || end !== undefined) return endedWith(end, { error, hasStarted: this.#hasStarted });
    if (this.#attempts > attemptsMax || Date.now() - this.#lostSinceMs > lostLimitMs) throw error;
    await this.#options.pause(pauseFirstMs * 2 ** (this.#attempts - 1), this.#options.signal);
    if (this.#source.kind === "attach") this.#source = { ...this.#source, fromOffset: this.#offset };
    return undefined;
  }

  #judge(error: unknown): { readonly isGone: boolean; readonly mayFollowAgain: boolean } {
    const mayFollowAgain = isUnanswered(error) || (this.#hasStarted && isSandboxError(error, "request-timeout"));
    if (this.#hasStarted) return { isGone: isSandboxError(error, "not-found"), mayFollowAgain };
    // A daemon that is younger than the first start refuses the repeated one.
    return { isGone: this.#firstSentMs !== undefined && isSandboxError(error, "conflict"), mayFollowAgain };
  }

  async #find(kind: EndQuestion["kind"]): Promise<ContainerEnd | undefined> {
    // Whether a start was carried out is the daemon's to say: an end before it must not be taken for its own.
    if (!this.#hasStarted && kind === "lost") return undefined;
    return this.#options.findEnd?.({ sinceMs: this.#sinceMs, kind });
  }
}

/** No answer came, or it broke off. Both are safe to repeat: a start has its key, and attaching changes nothing. */
function isUnanswered(error: unknown): boolean {
  return isSandboxError(error, "connection-lost") || isSandboxError(error, "unavailable");
}

/** The exit of a process whose container was killed for memory; throws `process-ended` for any other end of a container. */
function endedWith(
  end: ContainerEnd | undefined,
  { error, hasStarted }: { readonly error: unknown; readonly hasStarted: boolean },
): ProcessEvent {
  if (hasStarted && end?.limit === "OOMKilled")
    return { kind: "exit", exit: { code: 137, signal: "SIGKILL", reason: reasonOf(end) } };
  const limit = end?.limit === undefined ? "" : ` (${end.limit})`;
  const why = end === undefined ? ", which was stopped or restarted" : `: ${end.message}${limit}`;
  const what = hasStarted
    ? "the process ended with its sandbox"
    : "the command may have begun, and ended with its sandbox";
  throw new SandboxError("process-ended", `${what}${why}`, { cause: error, limit: end?.limit });
}

function reasonOf({ limit, message }: ContainerEnd): string {
  return limit === undefined ? message : `${limit}: ${message}`;
}

function openStream(
  { client, signal }: Pick<FollowOptions, "client" | "signal">,
  source: EventSource,
  firstSentMsAgo: number | undefined,
): AsyncGenerator<WireEvent> {
  if (source.kind === "start") {
    const { kind: _kind, ...rest } = source;
    const request = { ...rest, ...(firstSentMsAgo !== undefined && { firstSentMsAgo }) };
    const types = { request: startType, response: eventType };
    return client.stream(`${processService}/Start`, request, { signal, types });
  }
  const request = { id: source.id, fromOffset: source.fromOffset };
  const types = { request: attachType, response: eventType };
  return client.stream(`${processService}/Attach`, request, { signal, types });
}

/** The event and the offset behind it; undefined for a kind that this version does not know. */
function readEvent(wire: WireEvent, offset: number): { event: ProcessEvent; offset: number } | undefined {
  if (wire.started !== undefined) return { event: { kind: "started", process: wire.started }, offset };
  if (wire.stdout !== undefined) return readOutput("stdout", wire.stdout, offset);
  if (wire.stderr !== undefined) return readOutput("stderr", wire.stderr, offset);
  if (wire.exit !== undefined) return { event: { kind: "exit", exit: wire.exit }, offset };
  if (wire.dropped !== undefined) {
    const to = Number(wire.dropped.toOffset ?? 0);
    return { event: { kind: "dropped", bytes: Math.max(0, to - offset) }, offset: Math.max(offset, to) };
  }
  return undefined;
}

function readOutput(
  kind: "stdout" | "stderr",
  wire: WireOutput,
  offset: number,
): { event: ProcessEvent; offset: number } {
  const { data = "" } = wire;
  const bytes = typeof data === "string" ? fromBase64(data) : data;
  const start = Number(wire.offset ?? 0);
  // A repeated start replays from the beginning; what was passed on already is cut off.
  const fresh = start < offset ? bytes.subarray(Math.min(bytes.length, offset - start)) : bytes;
  return { event: { kind, bytes: fresh }, offset: Math.max(offset, start + bytes.length) };
}
