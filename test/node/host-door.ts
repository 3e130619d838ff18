import { chmodSync, renameSync, statSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import type { RealEngine } from "./real-engine.ts";

/** Verbs that only look: dying around them is dying between the effects beside them. */
const looks = new Set(["info", "waitContainer", "waitHeld", "cgroupStats", "containerState", "listWritableLayers"]);

/** A moment in the life of a sandbox: right before a verb takes effect, or right after it with its answer still to come. */
export interface Point {
  readonly verb: string;
  readonly when: "before" | "after";
}

/** What happens at a point; resolves with whether the call goes on. */
export type Strike = () => boolean;

/** Stands between an engine's agent and its helper, sees every verb, and strikes at a chosen one. */
export class HostDoor implements AsyncDisposable {
  /** Effects that went through since `arm`. */
  readonly verbs: string[] = [];
  readonly #socket: string;
  readonly #behind: string;
  #server: http.Server | undefined;
  #identity = "";
  #armed: (Point & { readonly strike: Strike }) | undefined;

  constructor(engine: RealEngine) {
    const dir = path.join(`/proc/${engine.place.pid}/root/run/agent-sandbox`, engine.instance);
    this.#socket = path.join(dir, "host.sock");
    this.#behind = path.join(dir, "behind.sock");
  }

  /** Takes the helper's place at its socket; needed again after the helper was restarted. */
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
    this.verbs.length = 0;
    this.#armed = point;
  }

  /** Whether the point has not been reached yet. */
  get isArmed(): boolean {
    return this.#armed !== undefined;
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const verb = path.basename(request.url ?? "");
    const body = await buffer(request);
    if (!looks.has(verb)) this.verbs.push(verb);
    if (!this.#passes(verb, "before")) return void request.socket.destroy();
    try {
      const answer = await this.#forward(request, response, body);
      if (!this.#passes(verb, "after")) return void request.socket.destroy();
      response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.body);
    } catch {
      request.socket.destroy();
    }
  }

  #passes(verb: string, when: Point["when"]): boolean {
    if (this.#armed?.verb !== verb || this.#armed.when !== when) return true;
    const { strike } = this.#armed;
    this.#armed = undefined;
    return strike();
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
