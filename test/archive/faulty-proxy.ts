import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What happens to a request on its way. */
export type Fault =
  /** It never gets there, and the client sees its connection cut in the middle of the body. */
  | "cut-request"
  /** The server has carried it out, and the client never hears of it. */
  | "lost-answer"
  /** The answer ends in the middle, with the length of all of it in its head. */
  | "cut-answer"
  /** The answer has its length and other bytes. */
  | "changed-answer"
  /** 500, from something between both. */
  | "error"
  /** The answer comes late, in two pieces. */
  | "slow"
  /** Nothing comes back within the client's time. */
  | "silent";

/** Less than clients of tests wait. */
const slowMs = 300;

/** An HTTP proxy in front of a server, which does to the next requests what `faults` says. */
export class FaultyProxy implements AsyncDisposable {
  /** For the next requests with a method, in their order. */
  readonly faults = new Map<string, Fault[]>();
  /** What went through, by method and path. */
  readonly seen: string[] = [];
  readonly #server: Server;
  readonly #to: number;

  private constructor(to: number) {
    this.#to = to;
    this.#server = createServer((incoming, answer) => this.#serve(incoming, answer));
  }

  static async open(to: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(to);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  #serve(incoming: IncomingMessage, answer: ServerResponse): void {
    const { method = "", url = "", headers } = incoming;
    this.seen.push(`${method} ${url.split("?")[0]}`);
    const fault = this.faults.get(method)?.shift();
    if (fault === "error") {
      incoming.resume();
      incoming.on("end", () => answer.writeHead(500).end("<Error><Code>InternalError</Code></Error>"));
      return;
    }
    if (fault === "cut-request" && headers["content-length"] === undefined) {
      answer.destroy();
      return;
    }
    if (fault === "silent") {
      incoming.resume();
      return;
    }
    // The server checks the name in the signature: it is the proxy's, as the client knows it.
    const outgoing = request({ host: "127.0.0.1", port: this.#to, method, path: url, headers });
    outgoing.on("error", () => answer.destroy());
    outgoing.on("response", (response) => this.#answer(response, answer, fault));
    if (fault === "cut-request")
      incoming.once("data", (bytes: Buffer) => {
        outgoing.write(bytes.subarray(0, bytes.length / 2));
        outgoing.destroy();
        answer.destroy();
      });
    else incoming.pipe(outgoing);
  }

  #answer(response: IncomingMessage, answer: ServerResponse, fault: Fault | undefined): void {
    const bytes: Buffer[] = [];
    response.on("data", (piece: Buffer) => bytes.push(piece));
    response.on("end", () => {
      if (fault === "lost-answer") return answer.destroy();
      const whole = Buffer.concat(bytes);
      answer.writeHead(response.statusCode ?? 502, response.headers);
      if (fault === "slow") {
        setTimeout(() => answer.write(whole.subarray(0, 1)), slowMs);
        setTimeout(() => answer.end(whole.subarray(1)), 2 * slowMs);
        return answer.flushHeaders();
      }
      if (fault === "cut-answer") return answer.write(whole.subarray(0, whole.length / 2), () => answer.destroy());
      if (fault === "changed-answer" && whole.length > 0)
        whole[whole.length >> 1] = (whole[whole.length >> 1] ?? 0) ^ 1;
      return answer.end(whole);
    });
  }
}
