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
    let isWhole = false;
    stream.once("end", () => {
      isWhole = true;
      resolve(chunks.length === 1 ? (chunks[0] ?? new Uint8Array()) : Buffer.concat(chunks));
    });
    stream.once("error", reject);
    // A stream that was read whole closes too, and making an error that is thrown away costs as much as parsing the request.
    stream.once("close", () => {
      if (!isWhole) reject(badRequest("the request ended before its body"));
    });
  });
}

/** Headers as the API server takes them: one string each, pseudo-headers left out. */
export function plainHeaders(headers: NodeJS.Dict<string | string[] | number>): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value === undefined || name.startsWith(":")) continue;
    result[name] = typeof value === "string" ? value : Array.isArray(value) ? value.join(", ") : String(value);
  }
  return result;
}
