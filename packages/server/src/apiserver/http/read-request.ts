import type { Readable } from "node:stream";
import { badRequest, tooLarge } from "@agent-sandbox/api";
import { bodyMaxBytes } from "../request/read-body.ts";

/** Reads a request body whole, within the limit; throws 413 without reading the rest. */
export function readRequest(stream: Readable): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    const onData = (chunk: Uint8Array): void => {
      bytes += chunk.byteLength;
      if (bytes <= bodyMaxBytes) {
        chunks.push(chunk);
        return;
      }
      stream.off("data", onData).pause();
      reject(tooLarge(`Request entity too large: limit is ${bodyMaxBytes}`));
    };
    stream.on("data", onData);
    stream.once("end", () => resolve(chunks.length === 1 ? (chunks[0] ?? new Uint8Array()) : Buffer.concat(chunks)));
    stream.once("error", reject);
    stream.once("close", () => reject(badRequest("the request ended before its body")));
  });
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
