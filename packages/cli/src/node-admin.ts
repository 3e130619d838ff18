import { closeSync, constants, fstatSync, lstatSync, openSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import { CliError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { dataDirOf } from "./data-dir.ts";
import { exitCodes } from "./exit-codes.ts";

/** A request to the node agent's local admin API. */
export interface AdminRequest {
  readonly method: string;
  readonly path: string;
  readonly body?: NodeJS.ReadableStream;
}

/** Sends a request over the node's socket, which only root and the node's user may open; throws what it refuses. */
export async function callNode(
  context: Context,
  flags: { readonly dataDir?: string },
  request: AdminRequest,
): Promise<http.IncomingMessage> {
  const dataDir = dataDirOf(flags, context);
  const record = await readEngineRecord(dataDir);
  if (record === undefined) {
    const hint = "Start it with: agent-sandbox up --detach";
    throw new CliError(`no engine is running on ${dataDir}, and images belong to the one-machine engine`, {
      exitCode: exitCodes.noEngine,
      hint,
    });
  }
  using socket = openSocket(record.nodeSocket);
  const response = await send(socket.path, request, context.signal);
  if (response.statusCode === 200) return response;
  const text = await readAll(response);
  const { message = text.trim() } = tryParse(text);
  throw new CliError(message);
}

/** Reads a whole answer as text. */
export async function readAll(response: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

/** A path of `open` that opens no file, only names it; Node has no word for it. */
const onlyName = 0o10000000;

/**
 * The node's socket by a descriptor. The node's user owns the directory, and what root says over the socket must not be said over whatever
 * else a link leads to: only a socket of that user is taken.
 */
function openSocket(file: string): Disposable & { readonly path: string } {
  const { uid } = lstatSync(path.dirname(file));
  const descriptor = openNamed(file);
  const close = (): void => closeSync(descriptor);
  const found = fstatSync(descriptor);
  if (!found.isSocket() || found.uid !== uid) {
    close();
    throw new CliError(`${file} is not the node's socket`, { exitCode: exitCodes.noEngine });
  }
  return { path: `/proc/self/fd/${descriptor}`, [Symbol.dispose]: close };
}

function openNamed(file: string): number {
  try {
    return openSync(file, onlyName | constants.O_NOFOLLOW);
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    throw code === "EACCES"
      ? new CliError("images need root; run it again as root", { cause, exitCode: exitCodes.denied })
      : new CliError(`the node does not answer: ${message}`, { cause, exitCode: exitCodes.noEngine });
  }
}

function send(
  socketPath: string,
  { method, path: url, body }: AdminRequest,
  signal: AbortSignal,
): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = http.request({ socketPath, method, path: url, signal });
    sent.once("response", resolve);
    sent.once("error", (error: NodeJS.ErrnoException) => {
      const options = { cause: error, exitCode: exitCodes.noEngine };
      reject(signal.aborted ? signal.reason : new CliError(`the node does not answer: ${error.message}`, options));
    });
    if (body === undefined) sent.end();
    else body.pipe(sent);
  });
}

function tryParse(text: string): { message?: string } {
  try {
    return JSON.parse(text) as { message?: string };
  } catch {
    return {};
  }
}
