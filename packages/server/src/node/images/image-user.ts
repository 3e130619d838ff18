import type { Readable } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { extract } from "tar-stream";
import type { BlobStore } from "./blob-store.ts";
import type { StoredImage } from "./image-index.ts";

/** The numbers behind an image's user. */
export interface ResolvedUser {
  readonly uid: number;
  readonly gid: number;
  readonly additionalGids: readonly number[];
}

/** The two files that give names numbers, as one image has them. */
export interface UserFiles {
  readonly passwd: string;
  readonly group: string;
}

/** Bytes of each file that are read; a real one has under 10 KiB. */
const fileBytesMax = 1024 * 1024;

/** The numbers of an image's `User`; undefined when it names a user that the image does not have. */
export function resolveUser(user: string, files: UserFiles): ResolvedUser | undefined {
  const [name = "", group] = user.split(":");
  const entries = files.passwd.split("\n").map((line) => line.split(":"));
  const isNumber = /^\d{1,10}$/.test(name);
  const entry =
    name === ""
      ? ["root", "", "0", "0"]
      : entries.find((fields) => (isNumber ? fields[2] === name : fields[0] === name));
  if (entry === undefined && !isNumber) return undefined;
  const uid = entry === undefined ? Number(name) : Number(entry[2]);
  const gid = group === undefined ? Number(entry?.[3] ?? 0) : groupNumber(group, files.group);
  if (gid === undefined || !Number.isInteger(uid)) return undefined;
  return {
    uid,
    gid,
    additionalGids: group === undefined && entry !== undefined ? memberships(entry[0] ?? "", files.group) : [],
  };
}

function groupNumber(group: string, file: string): number | undefined {
  if (/^\d{1,10}$/.test(group)) return Number(group);
  const fields = file
    .split("\n")
    .map((line) => line.split(":"))
    .find(([name]) => name === group);
  return fields === undefined ? undefined : Number(fields[2]);
}

function memberships(user: string, file: string): number[] {
  return file
    .split("\n")
    .map((line) => line.split(":"))
    .filter((fields) => (fields[3] ?? "").split(",").includes(user))
    .map((fields) => Number(fields[2]))
    .filter(Number.isInteger)
    .slice(0, 64);
}

/** Reads the two files out of an image's layers, the topmost that has them. */
export async function readUserFiles(image: StoredImage, blobs: BlobStore, signal: AbortSignal): Promise<UserFiles> {
  const found = new Map<string, string>();
  const wanted = ["etc/passwd", "etc/group"];
  for (const layer of image.layers.toReversed()) {
    signal.throwIfAborted();
    if (wanted.every((path) => found.has(path))) break;
    const missing = new Set(wanted.filter((path) => !found.has(path)));
    for (const [path, text] of await readFromLayer(blobs.openStream(layer.digest) as Readable, missing))
      found.set(path, text);
  }
  return { passwd: found.get("etc/passwd") ?? "", group: found.get("etc/group") ?? "" };
}

async function readFromLayer(blob: Readable, wanted: ReadonlySet<string>): Promise<Map<string, string>> {
  const tar = extract();
  const plain = decompress(blob, await firstBytes(blob));
  for (const stream of new Set([blob, plain])) stream.on("error", (error) => tar.destroy(error));
  plain.pipe(tar);
  const found = new Map<string, string>();
  for await (const entry of tar) {
    const path = entry.header.name.replace(/^\.?\//, "");
    if (wanted.has(path) && entry.header.type === "file" && (entry.header.size ?? 0) <= fileBytesMax) {
      const chunks: Buffer[] = [];
      for await (const chunk of entry) chunks.push(chunk as Buffer);
      found.set(path, Buffer.concat(chunks).toString("utf8"));
      if (found.size === wanted.size) break;
    } else entry.resume();
  }
  blob.destroy();
  return found;
}

async function firstBytes(blob: Readable): Promise<Buffer> {
  await new Promise<void>((resolve, reject) =>
    blob.once("readable", resolve).once("end", resolve).once("error", reject),
  );
  const chunk = (blob.read() as Buffer | null) ?? Buffer.alloc(0);
  if (chunk.length > 0) blob.unshift(chunk);
  return chunk;
}

function decompress(blob: Readable, head: Buffer): Readable {
  if (head[0] === 0x1f && head[1] === 0x8b) return blob.pipe(createGunzip());
  if (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528) return blob.pipe(createZstdDecompress());
  return blob;
}
