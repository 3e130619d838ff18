import { isSandboxError, type Limit, SandboxError } from "../errors/sandbox-error.ts";
import { fromBase64 } from "../plane/base64.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
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
    }
  | { readonly kind: "attach"; readonly id: string; readonly fromOffset: number };

/** How to follow events. */
export interface FollowOptions {
  readonly client: ConnectClient;
  readonly source: EventSource;
  readonly signal?: AbortSignal | undefined;
  /** Waits before a new attempt; rejects with the signal's reason. */
  readonly pause: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  readonly limitReached?: FindLimit | undefined;
}

/** A limit that ended a sandbox. */
export interface LimitReached {
  readonly limit: Limit;
  /** What its condition says. */
  readonly message: string;
}

/** Finds the limit that ended the sandbox since a moment; undefined where none did, or it cannot be found out. */
export type FindLimit = (sinceMs: number) => Promise<LimitReached | undefined>;

// Nine attempts, doubling from 25 ms, span some twelve seconds: longer than a router takes to start again.
const attemptsMax = 9;
const pauseFirstMs = 25;

/**
 * Follows a process to its exit across lost connections. A start whose answer was lost is repeated under the same key,
 * which the sandbox answers with the process that it started the first time; later losses attach behind the last byte
 * seen. So no command ever runs twice, and no output is passed on twice.
 */
export async function* followProcess(options: FollowOptions): AsyncGenerator<ProcessEvent> {
  let { source } = options;
  let offset = source.kind === "attach" ? source.fromOffset : 0;
  let hasStarted = false;
  let attempts = 0;
  const sinceMs = Date.now();
  for (;;) {
    try {
      for await (const event of openStream(options, source)) {
        attempts = 0;
        const known = readEvent(event, offset);
        if (known === undefined) continue;
        if (known.event.kind === "started") {
          const id = known.event.process.id ?? "";
          source = { kind: "attach", id, fromOffset: offset };
          if (hasStarted) continue;
          hasStarted = true;
        }
        offset = known.offset;
        if (known.event.kind !== "dropped" || known.event.bytes > 0) yield known.event;
        if (known.event.kind === "exit") return;
      }
      throw new SandboxError("connection-lost", "the stream ended before the process did");
    } catch (error) {
      attempts += 1;
      const isGone = hasStarted && isSandboxError(error, "not-found");
      const isLost = mayFollowAgain(error) && attempts > attemptsMax;
      const reached = isGone || (hasStarted && isLost) ? await options.limitReached?.(sinceMs) : undefined;
      if (isGone || reached !== undefined) throw goneWithSandbox(error, reached);
      if (!mayFollowAgain(error) || isLost) throw error;
      await options.pause(pauseFirstMs * 2 ** (attempts - 1), options.signal);
      if (source.kind === "attach") source = { ...source, fromOffset: offset };
    }
  }
}

/** No answer came, or it broke off. Both are safe to repeat: a start has its key, and attaching changes nothing. */
function mayFollowAgain(error: unknown): boolean {
  return isSandboxError(error, "connection-lost") || isSandboxError(error, "unavailable");
}

/** The daemon that knew the process is no more: its sandbox was stopped, and perhaps started again. */
function goneWithSandbox(cause: unknown, reached: LimitReached | undefined): SandboxError {
  const why = reached === undefined ? ", which was stopped or restarted" : `: ${reached.message} (${reached.limit})`;
  return new SandboxError("process-ended", `the process ended with its sandbox${why}`, {
    cause,
    limit: reached?.limit,
  });
}

function openStream({ client, signal }: FollowOptions, source: EventSource): AsyncGenerator<WireEvent> {
  if (source.kind === "start") {
    const { spec, idempotencyKey, killOnDisconnect } = source;
    const types = { request: startType, response: eventType };
    return client.stream(`${processService}/Start`, { spec, idempotencyKey, killOnDisconnect }, { signal, types });
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
