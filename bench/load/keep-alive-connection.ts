import { connect, type TLSSocket } from "node:tls";
import type { Credentials } from "@agent-sandbox/kube";

/** An answer as it came; its body is decoded when it is read. */
export class Answer {
  readonly status: number;
  readonly #head: string;
  readonly #body: Buffer;

  constructor(head: string, body: Buffer) {
    this.status = Number(head.slice(9, 12));
    this.#head = head;
    this.#body = body;
  }

  get text(): string {
    return (isChunked(this.#head) ? joinChunks(this.#body) : this.#body).toString();
  }
}

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/**
 * One HTTP/1.1 connection over TLS that carries one request at a time and is opened anew when it broke. It knows no more of HTTP
 * than a benchmark needs: what the client costs is taken from the server it shares the machine with.
 */
export class KeepAliveConnection {
  readonly #credentials: Credentials;
  readonly #host: string;
  readonly #port: number;
  #socket: TLSSocket | undefined;
  #waiting: Waiting | undefined;
  #received: Buffer[] = [];
  #receivedBytes = 0;
  /** Of the answer under way, once its head is there. */
  #head: string | undefined;
  #headBytes = 0;

  constructor(credentials: Credentials) {
    const { hostname, port } = new URL(credentials.server);
    this.#credentials = credentials;
    this.#host = hostname;
    this.#port = Number(port);
  }

  /** Precondition: the answer to the request before has come. */
  send(method: string, path: string, body = ""): Promise<Answer> {
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const content = body === "" ? "" : `content-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`;
    this.#socket ??= this.#open();
    this.#socket.write(`${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\n${content}\r\n${body}`);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  close(): void {
    this.#socket?.destroy();
  }

  #open(): TLSSocket {
    const { ca, cert, key } = this.#credentials;
    const socket = connect({ host: this.#host, port: this.#port, ca, cert, key, ALPNProtocols: ["http/1.1"] });
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#fail(socket, error));
    socket.on("close", () => this.#fail(socket, new Error("the server closed the connection")));
    return socket;
  }

  #take(chunk: Buffer): void {
    this.#received.push(chunk);
    this.#receivedBytes += chunk.byteLength;
    this.#head ??= this.#readHead();
    if (this.#head === undefined || !this.#isWhole(this.#head, chunk)) return;
    const whole = this.#received.length === 1 ? chunk : Buffer.concat(this.#received);
    const answer = new Answer(this.#head, whole.subarray(this.#headBytes));
    const waiting = this.#forget();
    waiting?.resolve(answer);
  }

  #readHead(): string | undefined {
    const bytes = this.#received.length === 1 ? this.#received[0] : Buffer.concat(this.#received);
    const end = bytes?.indexOf("\r\n\r\n") ?? -1;
    if (bytes === undefined || end < 0) return undefined;
    this.#headBytes = end + 4;
    return bytes.toString("latin1", 0, end);
  }

  #isWhole(head: string, last: Buffer): boolean {
    const bodyBytes = this.#receivedBytes - this.#headBytes;
    const length = /^content-length: *(\d+)/im.exec(head)?.[1];
    if (length !== undefined) return bodyBytes >= Number(length);
    if (!isChunked(head)) return true;
    // Neither JSON nor a page of metrics holds this line break, so these bytes can be nothing but the last chunk.
    const tail = last.byteLength < lastChunk.length ? Buffer.concat(this.#received.slice(-lastChunk.length)) : last;
    return tail.toString("latin1", tail.byteLength - lastChunk.length) === lastChunk;
  }

  #forget(): Waiting | undefined {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#received = [];
    this.#receivedBytes = 0;
    this.#head = undefined;
    return waiting;
  }

  #fail(socket: TLSSocket, error: Error): void {
    // A connection that broke closes too, perhaps when the next one carries a request already.
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    this.#forget()?.reject(error);
  }
}

const lastChunk = "\r\n0\r\n\r\n";

function isChunked(head: string): boolean {
  return /^transfer-encoding: *chunked/im.test(head);
}

function joinChunks(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const lineEnd = body.indexOf("\r\n", at);
    const length = Number.parseInt(body.toString("latin1", at, lineEnd), 16);
    if (length === 0) return Buffer.concat(parts);
    parts.push(body.subarray(lineEnd + 2, lineEnd + 2 + length));
    at = lineEnd + 2 + length + 2;
  }
}
