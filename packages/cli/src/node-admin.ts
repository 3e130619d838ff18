import http from "node:http";
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

/** Sends a request over the node's socket, which only root and the engine's user may open; throws what it refuses. */
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
  const response = await send(record.nodeSocket, request, context.signal);
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

function send(
  socketPath: string,
  { method, path, body }: AdminRequest,
  signal: AbortSignal,
): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = http.request({ socketPath, method, path, signal });
    sent.once("response", resolve);
    sent.once("error", (error: NodeJS.ErrnoException) => {
      const isDenied = error.code === "EACCES";
      const options = { cause: error, exitCode: isDenied ? exitCodes.denied : exitCodes.noEngine };
      reject(
        signal.aborted
          ? signal.reason
          : new CliError(
              isDenied ? "images need root; run it again as root" : `the node does not answer: ${error.message}`,
              options,
            ),
      );
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
