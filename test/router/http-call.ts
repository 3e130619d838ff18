import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import type { Seen } from "./upstream.ts";

/** What a call sends besides its path. */
export interface CallOptions {
  readonly method?: string;
  readonly headers?: http.OutgoingHttpHeaders;
  readonly body?: string | Buffer;
  readonly agent?: http.Agent;
}

/** An answer, read to its end. */
export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly trailers: NodeJS.Dict<string>;
  readonly text: string;
}

/** One request to a port of this machine, with the path exactly as given. */
export async function call(port: number, path: string, options: CallOptions = {}): Promise<Answer> {
  const request = http.request({
    host: "127.0.0.1",
    port,
    path,
    method: options.method ?? "GET",
    headers: options.headers ?? {},
    agent: options.agent ?? false,
  });
  request.end(options.body);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  return readAnswer(response);
}

/** Reads a response to its end. */
export async function readAnswer(response: http.IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  const { statusCode: status = 0, headers, rawHeaders, trailers } = response;
  return { status, headers, rawHeaders, trailers, text: Buffer.concat(chunks).toString() };
}

/** What the echo server saw. */
export function seen(answer: Answer): Seen {
  return JSON.parse(answer.text) as Seen;
}

/** Sends bytes as they are and resolves with everything that came back until the other side ended. */
export async function exchangeRaw(port: number, bytes: string): Promise<string> {
  const socket = net.connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.write(bytes);
  await once(socket, "end");
  socket.end();
  return Buffer.concat(chunks).toString("latin1");
}
