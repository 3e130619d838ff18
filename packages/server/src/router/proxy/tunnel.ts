import type { Duplex } from "node:stream";
import { holdBack, StreamWriter } from "@agent-sandbox/kube";
import { closeFrame, goingAway, WebsocketFrames } from "./websocket-frames.ts";

/** Tells a session to end, with a reason that its two ends can read. */
export type EndSession = (reason: string) => void;

/** How a tunnel ends besides by its own ends. */
export interface TunnelOptions {
  readonly isWebsocket: boolean;
  /** Without a byte in either direction for this long it is ended; 0 means never. */
  readonly idleTimeoutMs: number;
  /** The longest a session lasts; 0 means for ever. */
  readonly lifetimeMs: number;
  /** When the right to the session ends; undefined: not by itself. */
  readonly endsInMs: number | undefined;
  /** WebSockets that are open, for a router that shuts down; other protocols have no word for it, and end with the drain. */
  readonly sessions: Set<EndSession>;
}

/** What both ends of a WebSocket get to answer the goodbye, before they are cut. */
const farewellMs = 1_000;

/** What a frame under way gets to come to its end. */
const lastFrameMs = 30_000;

/** The two ends of a tunnel. */
export interface TunnelEnds {
  readonly client: Duplex;
  readonly upstream: Duplex & { setTimeout(ms: number): unknown };
}

/** Bytes both ways until both directions have ended; either side's failure ends the other. */
export function tunnel({ client, upstream }: TunnelEnds, options: TunnelOptions): Promise<void> {
  return new Promise((resolve) => {
    let open = 2;
    const cut = (): void => {
      options.sessions.delete(endSession);
      for (const timer of timers) clearTimeout(timer);
      client.destroy();
      upstream.destroy();
      resolve();
    };
    const end = (): void => {
      open -= 1;
      if (open === 0) cut();
    };
    const endSession = options.isWebsocket ? followFrames(client, upstream, cut) : cut;
    const { idleTimeoutMs, lifetimeMs, endsInMs } = options;
    const timers = [
      lifetimeMs > 0 ? setTimeout(() => endSession("max lifetime exceeded"), lifetimeMs) : undefined,
      endsInMs === undefined ? undefined : setTimeout(() => endSession("credential expired"), clampTimer(endsInMs)),
    ];
    if (options.isWebsocket) options.sessions.add(endSession);
    if (idleTimeoutMs > 0) {
      upstream.setTimeout(idleTimeoutMs);
      upstream.once("timeout", () => endSession("idle timeout exceeded"));
    }
    client.once("end", end);
    upstream.once("end", end);
    for (const side of [client, upstream]) {
      side.once("error", cut);
      side.once("close", cut);
    }
    client.pipe(upstream);
    upstream.pipe(client);
  });
}

/** Timers count to 2^31 milliseconds and fire at once beyond; a session of 24 days may go on to be judged by its next request. */
function clampTimer(ms: number): number {
  return Math.min(Math.max(ms, 0), 2 ** 31 - 1);
}

/** Follows both directions, so that a close frame can be put between two frames. Returns what says goodbye on both sides. */
function followFrames(client: Duplex, upstream: Duplex, cut: () => void): EndSession {
  const fromClient = new WebsocketFrames();
  const fromUpstream = new WebsocketFrames();
  const follow = (frames: WebsocketFrames) => (chunk: Buffer) => frames.push(chunk);
  const [onClient, onUpstream] = [follow(fromClient), follow(fromUpstream)];
  client.on("data", onClient);
  upstream.on("data", onUpstream);
  let isEnding = false;
  return (reason) => {
    if (isEnding) return;
    isEnding = true;
    client.removeListener("data", onClient);
    upstream.removeListener("data", onUpstream);
    client.unpipe(upstream);
    upstream.unpipe(client);
    let said = 0;
    let timer = setTimeout(cut, lastFrameMs).unref();
    const onSaid = (): void => {
      said += 1;
      if (said < 2) return;
      clearTimeout(timer);
      timer = setTimeout(cut, farewellMs).unref();
    };
    const toClient = closeFrame(goingAway, reason, { isMasked: false });
    const toUpstream = closeFrame(goingAway, reason, { isMasked: true });
    sayGoodbye({ from: upstream, to: client, frames: fromUpstream, farewell: toClient }, onSaid);
    sayGoodbye({ from: client, to: upstream, frames: fromClient, farewell: toUpstream }, onSaid);
  };
}

interface Direction {
  readonly from: Duplex;
  readonly to: Duplex;
  readonly frames: WebsocketFrames;
  readonly farewell: Buffer;
}

/** Lets the frame under way come to its end, then closes the direction; what comes later is read and dropped. */
function sayGoodbye({ from, to, frames, farewell }: Direction, onSaid: () => void): void {
  let isSaid = false;
  const writer = new StreamWriter(to);
  const say = (): void => {
    if (isSaid || !frames.isBetween) return;
    isSaid = true;
    if (to.writable) to.end(farewell);
    onSaid();
  };
  from.on("data", (chunk: Buffer) => {
    if (isSaid) return;
    writer.write(chunk.subarray(0, frames.pushToBoundary(chunk)));
    holdBack(from, writer);
    say();
  });
  say();
  from.resume();
}
