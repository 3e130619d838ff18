import type { Readable } from "node:stream";
import { tooLarge } from "@agent-sandbox/api";
import { bodyMaxBytes } from "../request/read-body.ts";

/** Reads a request body whole, within the limit; throws 413 without reading the rest. */
export async function readRequest(stream: Readable): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > bodyMaxBytes) throw tooLarge(`Request entity too large: limit is ${bodyMaxBytes}`);
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] ?? new Uint8Array()) : Buffer.concat(chunks);
}

/** Headers as the API server takes them: one string each, pseudo-headers left out. */
export function plainHeaders(headers: NodeJS.Dict<string | string[] | number>): Record<string, string> {
  const result: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(":")) continue;
    result[name] = Array.isArray(value) ? value.join(", ") : String(value);
  }
  return result;
}
