import { createHash } from "node:crypto";
import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { HostError } from "./host-error.ts";
import type { Layer, UnpackLayerRequest } from "./layer.ts";

const blockBytes = 512;

/** Checks a layer as sandbox-host does, without unpacking it anywhere. */
export function readFakeLayer(request: UnpackLayerRequest, blob: Uint8Array): Layer {
  assertDigest("blob", request.digest, blob);
  const tar = decompress(blob);
  const layer = { id: request.diffId, ...scanTar(tar) };
  assertDigest("layer", request.diffId, tar);
  return layer;
}

function assertDigest(what: string, want: string, bytes: Uint8Array): void {
  const got = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  if (got !== want) throw new HostError("digest-mismatch", `${what} is ${got}, expected ${want}`);
}

function decompress(blob: Uint8Array): Buffer {
  if (blob[0] === 0x1f && blob[1] === 0x8b) return gunzipSync(blob);
  if (blob[0] === 0x28 && blob[1] === 0xb5) return zstdDecompressSync(blob);
  return Buffer.from(blob);
}

function scanTar(tar: Buffer): { unpackedBytes: number; files: number } {
  let unpackedBytes = 0;
  let files = 0;
  for (let at = 0; at + blockBytes <= tar.length && tar[at] !== 0; ) {
    const name = textField(tar, at, 100);
    const size = Number.parseInt(textField(tar, at + 124, 12).trim() || "0", 8);
    const type = String.fromCharCode(tar[at + 156] ?? 0);
    if (type === "3" || type === "4") throw new HostError("entry-refused", `layer entry "${name}" is a device node`);
    if (name.split("/").includes("..")) throw new HostError("path-escape", `layer entry "${name}" leads outside`);
    if (type !== "x" && type !== "g") files += 1;
    if (type === "0" || type === "\0") unpackedBytes += size;
    at += blockBytes + Math.ceil(size / blockBytes) * blockBytes;
  }
  return { unpackedBytes, files };
}

function textField(tar: Buffer, at: number, length: number): string {
  const field = tar.subarray(at, at + length);
  const end = field.indexOf(0);
  return field.subarray(0, end < 0 ? length : end).toString();
}
