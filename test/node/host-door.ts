import { chmodSync, renameSync, statSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { roleProcess } from "./engine-processes.ts";
import type { RealEngine } from "./real-engine.ts";

/**
 * Verbs that change nothing: dying around them is dying between the effects beside them. The agent calls some of them
 * by the clock (it samples the disks every ten seconds), so they fall into one life and not into the next.
 */
function onlyLooks(verb: string): boolean {
  return /^(list|wait)[A-Z]/.test(verb) || verb === "info" || verb === "cgroupStats";
}

/** A helper looks at its runtimes for longer than this before it opens its socket. */
const startPollMs = 20;

/** As short as it may be: the agent is held. */
const socketPollMs = 5;

/**
 * A moment in the life of a sandbox: right before a verb takes effect, right after it with its answer still to come, or amid it, so many
 * milliseconds after it began. The effect is the verb, after `making` if it makes a sandbox ahead and after `ahead` if it is about one
 * that has been made.
 */
export interface Point {
  readonly effect: string;
  readonly when: "before" | "after" | "amid";
  readonly delayMs?: number;
  /** Which of the calls with this effect; the first unless it is said. */
  readonly call?: number;
}

/** What happens at a point; resolves with whether the call goes on. */
export type Strike = () => boolean;

/** Stands between an engine's agent and its helper, sees every verb, and strikes at a chosen one. */
export class HostDoor implements AsyncDisposable {
  /** Effects that went through since `arm`. */
  readonly effects: string[] = [];
  /** Sandboxes made ahead that the agent has been told of. */
  readonly #told = new Set<string>();
  /** Those of them whose end it waits for: it gives them to pods. */
  readonly #known = new Set<string>();
  readonly #engine: RealEngine;
  readonly #socket: string;
  readonly #behind: string;
  #server: http.Server | undefined;
  #identity = "";
  #armed: (Point & { readonly strike: Strike }) | undefined;
  /** Resolves when a strike amid a call that has begun has come. */
  #amid = Promise.resolve();

  constructor(engine: RealEngine) {
    this.#engine = engine;
    const dir = path.join(`/proc/${engine.place.pid}/root/run/agent-sandbox`, engine.instance);
    this.#socket = path.join(dir, "host.sock");
    this.#behind = path.join(dir, "behind.sock");
  }

  /**
   * Takes the place of the helper that follows a killed one. The agent is held from that one's start until then: whatever it sent over a
   * connection of that moment would go past the door.
   */
  async standAgain(killed: number): Promise<void> {
    while ((roleProcess(this.#engine, "sandbox-host") ?? killed) === killed) await sleep(startPollMs);
    const agent = roleProcess(this.#engine, "node");
    if (agent !== undefined) process.kill(agent, "SIGSTOP");
    try {
      while (!this.isReplaced) await sleep(socketPollMs);
      await this.stand();
    } finally {
      if (agent !== undefined) process.kill(agent, "SIGCONT");
    }
  }

  /** Takes the helper's place at its socket. */
  async stand(): Promise<void> {
    if (!this.isReplaced) return;
    renameSync(this.#socket, this.#behind);
    const server = http.createServer((request, response) => void this.#serve(request, response));
    server.on("upgrade", (request, socket, head) => this.#pipe(request, socket as net.Socket, head));
    await new Promise<void>((resolve) => server.listen(this.#socket, resolve));
    chmodSync(this.#socket, 0o666);
    this.#identity = this.#seen();
    this.#server = server;
  }

  /** Whether a helper has taken the socket back. */
  get isReplaced(): boolean {
    const seen = this.#seen();
    return seen !== "" && seen !== this.#identity;
  }

  /** Which file is there; a new one may have the number of the one that it took the place of. */
  #seen(): string {
    const stat = statSync(this.#socket, { bigint: true, throwIfNoEntry: false });
    return stat === undefined ? "" : `${stat.ino} ${stat.ctimeNs}`;
  }

  /** Strikes once at a point of what follows; without one, only notes what goes through. */
  arm(point?: Point & { readonly strike: Strike }): void {
    this.effects.length = 0;
    this.#armed = point;
  }

  /** Whether the agent has a sandbox made ahead to give to a pod, or has given it to one. */
  knowsAhead(id: string): boolean {
    return this.#known.has(id);
  }

  /** The agent is another one: it knows nothing of what was made ahead before it. */
  forgetAhead(): void {
    this.#told.clear();
    this.#known.clear();
  }

  /** Whether the point has not been reached yet. */
  get isArmed(): boolean {
    return this.#armed !== undefined;
  }

  /** Resolves when a strike amid a call that has begun has come: a quick call, and what follows from it, may end before. */
  settled(): Promise<void> {
    return this.#amid;
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const verb = path.basename(request.url ?? "");
    const body = await buffer(request);
    const { id = "", waiting = false } = JSON.parse(body.toString()) as { id?: string; waiting?: boolean };
    const effect = this.#effect(verb, id);
    if (!onlyLooks(verb)) this.effects.push(effect);
    const call = this.effects.filter((each) => each === effect).length;
    if (!this.#passes({ effect, call, when: "before" })) return void request.socket.destroy();
    try {
      const answer = await this.#forward(request, response, body);
      if (!this.#passes({ effect, call, when: "after" })) return void request.socket.destroy();
      if (waiting && answer.status === 200) this.#told.add(id);
      response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.body);
    } catch {
      request.socket.destroy();
    }
  }

  #effect(verb: string, id: string): string {
    const [ahead] = /^ahead-[0-9a-f]+/.exec(id) ?? [];
    if (ahead === undefined) return verb;
    if (verb === "waitContainer" && this.#told.has(ahead)) this.#known.add(ahead);
    return `${this.#told.has(ahead) ? "ahead" : "making"} ${verb}`;
  }

  #passes({ effect, call, when }: Point): boolean {
    if (this.#armed?.effect !== effect || (this.#armed.call ?? 1) !== call) return true;
    const { strike, delayMs, when: wanted } = this.#armed;
    const act = (): boolean => {
      this.#armed = undefined;
      return strike();
    };
    if (wanted === "amid") {
      // Armed until then, but for no other call.
      this.#armed = { ...this.#armed, effect: "" };
      this.#amid = sleep(delayMs).then(() => void act());
      return true;
    }
    return wanted === when ? act() : true;
  }

  async #forward(
    request: http.IncomingMessage,
    caller: http.ServerResponse,
    body: Buffer,
  ): Promise<{ status: number; body: Buffer }> {
    const outgoing = http.request({
      socketPath: this.#behind,
      method: "POST",
      path: request.url,
      headers: { "content-type": "application/json" },
      agent: false,
    });
    // A caller that dies takes its call back, as it does without a door.
    caller.once("close", () => outgoing.destroy());
    const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
      outgoing.once("response", resolve).once("error", reject).end(body);
    });
    return { status: response.statusCode ?? 500, body: await buffer(response) };
  }

  #pipe(request: http.IncomingMessage, socket: net.Socket, head: Buffer): void {
    const behind = net.connect({ path: this.#behind, allowHalfOpen: true });
    const lines = request.rawHeaders.flatMap((word, index, all) =>
      index % 2 === 0 ? [`${word}: ${all[index + 1]}`] : [],
    );
    behind.write(`POST ${request.url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
    behind.write(head);
    socket.pipe(behind).pipe(socket);
    socket.on("error", () => behind.destroy());
    behind.on("error", () => socket.destroy());
  }

  /** Gives the helper its socket back. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#server?.closeAllConnections();
    if (!this.isReplaced) renameSync(this.#behind, this.#socket);
    this.#server?.close();
  }
}
