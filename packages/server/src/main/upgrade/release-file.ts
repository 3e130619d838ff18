import { createHash } from "node:crypto";
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { open } from "node:fs/promises";
import path from "node:path";
import { PassThrough } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { extract, type Header } from "tar-stream";
import { type ReleaseRecord, releaseLayout } from "../../installation/installation.ts";
import { ensureReadableDirectory } from "./readable-directory.ts";
import { isVersion } from "./release-version.ts";
import { UpgradeError } from "./upgrade-error.ts";

/** What every release has; without one of them it cannot start. */
const needed = ["bin/agent-sandbox", "lib/node", `${releaseLayout.app}/main.js`, releaseLayout.record];

/** More than the record of any release takes; a piece is 64 KiB at most. */
const recordPiecesMax = 16;

/** What was found in an archive. */
interface Contents {
  /** The one folder that everything is in. */
  top?: string;
  /** Names below that folder. */
  readonly files: Set<string>;
  /** By the name in `libexec`. */
  readonly programs: Map<string, string>;
  record?: Buffer;
}

/**
 * Reads a release from end to end and throws unless it is whole and for this machine: its own digests, and those of a list beside it.
 * With `into`, a directory that is there and empty, it is unpacked to it on the way; what is in it after a throw is not to be used.
 */
export async function readReleaseFile(file: string, into?: string): Promise<ReleaseRecord> {
  if (!existsSync(file)) throw new UpgradeError("file-missing", `there is no file ${file}`);
  const contents: Contents = { files: new Set(), programs: new Map() };
  const digest = createHash("sha256");
  const tee = new PassThrough();
  tee.on("data", (chunk: Buffer) => digest.update(chunk));
  const entries = extract();
  // Consumes what the pipeline brings; both reject when either fails, and the first says why.
  const read = readEntries(entries, contents, into);
  try {
    await Promise.all([pipeline(createReadStream(file), tee, createGunzip(), entries), read]);
  } catch (error) {
    await read.catch(() => undefined);
    throw damage(file, error);
  }
  const record = checkRecord(file, contents);
  checkDigests(file, record, contents);
  checkList(file, digest.digest("hex"));
  return record;
}

async function readEntries(entries: ReturnType<typeof extract>, contents: Contents, into?: string): Promise<void> {
  for await (const entry of entries) {
    const name = nameOf(entry.header, contents);
    if (entry.header.type === "directory") {
      if (into !== undefined) ensureReadableDirectory(path.join(into, name));
      entry.resume();
      continue;
    }
    contents.files.add(name);
    await take(entry as AsyncIterable<Uint8Array>, name, {
      contents,
      mode: ((entry.header.mode ?? 0) & 0o100) === 0 ? 0o644 : 0o755,
      ...(into !== undefined && { into }),
    });
  }
}

/** The name below the archive's folder. What is neither file nor directory, or leads elsewhere, has no place in a release. */
function nameOf({ name, type }: Header, contents: Contents): string {
  const parts = name.split("/").filter((part, index, all) => part !== "" || index < all.length - 1);
  const [top = "", ...rest] = parts;
  contents.top ??= top;
  const isPlain = parts.every((part) => part !== "" && part !== "." && part !== ".." && !part.includes("\0"));
  if (!isPlain || top !== contents.top || (type !== "file" && type !== "directory"))
    throw new UpgradeError("not-a-release", `it holds ${JSON.stringify(name)}, which no release does`);
  return rest.join("/");
}

interface Taking {
  readonly contents: Contents;
  readonly mode: number;
  readonly into?: string;
}

/** One file of the archive, at most one piece of it in memory. */
async function take(entry: AsyncIterable<Uint8Array>, name: string, { contents, mode, into }: Taking): Promise<void> {
  const digest = createHash("sha256");
  const kept: Uint8Array[] = [];
  if (into !== undefined) ensureReadableDirectory(path.dirname(path.join(into, name)));
  const file = into === undefined ? undefined : await open(path.join(into, name), "wx", mode);
  try {
    for await (const piece of entry) {
      digest.update(piece);
      if (name === releaseLayout.record && kept.length < recordPiecesMax) kept.push(piece);
      await file?.writeFile(piece);
    }
    // Not by `open`: root's umask may close it for the roles' users.
    await file?.chmod(mode);
    await file?.sync();
  } finally {
    await file?.close();
  }
  if (name === releaseLayout.record) contents.record = Buffer.concat(kept);
  const [folder, program, ...deeper] = name.split("/");
  if (folder === releaseLayout.programs && program !== undefined && deeper.length === 0)
    contents.programs.set(program, digest.digest("hex"));
}

function damage(file: string, error: unknown): UpgradeError {
  const { code = "", message } = error as NodeJS.ErrnoException;
  if (error instanceof UpgradeError)
    return new UpgradeError(error.code, `${file} is not a release of agent-sandbox: ${message}`);
  if (code === "Z_BUF_ERROR" || /unexpected end/i.test(message))
    return new UpgradeError("not-a-release", `${file} ends too early; get it again`, { cause: error });
  if (code.startsWith("Z_") || /tar header/i.test(message))
    return new UpgradeError(
      "not-a-release",
      `${file} is damaged, or not a release of agent-sandbox; name a file agent-sandbox-<version>-linux-${process.arch}.tar.gz`,
      { cause: error },
    );
  return new UpgradeError("file-missing", `${file} cannot be read or unpacked: ${message}`, { cause: error });
}

function checkRecord(file: string, { files, record: text, top }: Contents): ReleaseRecord {
  const lacking = needed.find((name) => !files.has(name));
  if (lacking !== undefined)
    throw new UpgradeError(
      "not-a-release",
      files.size === 0
        ? `${file} ends too early; get it again`
        : `${file} is not a release of agent-sandbox: it has no ${lacking}`,
    );
  const record = parseRecord(text?.toString("utf8") ?? "");
  if (record === undefined || top !== `agent-sandbox-${record.version}-linux-${record.arch}`)
    throw new UpgradeError(
      "not-a-release",
      `${file} is not a release of agent-sandbox: its ${releaseLayout.record} is not one`,
    );
  if (record.arch !== process.arch)
    throw new UpgradeError(
      "wrong-machine",
      `${file} is for ${record.arch}, and this machine is ${process.arch}; get agent-sandbox-${record.version}-linux-${process.arch}.tar.gz`,
    );
  return record;
}

/** A release's record, or undefined for what is none. */
export function parseRecord(text: string): ReleaseRecord | undefined {
  let found: Partial<ReleaseRecord>;
  try {
    found = JSON.parse(text) as Partial<ReleaseRecord>;
  } catch {
    return undefined;
  }
  const { version, arch, storeFormat, programs } = found;
  const isRecord =
    typeof version === "string" &&
    isVersion(version) &&
    typeof arch === "string" &&
    typeof storeFormat === "number" &&
    typeof programs === "object" &&
    programs !== null;
  return isRecord ? (found as ReleaseRecord) : undefined;
}

function checkDigests(file: string, record: ReleaseRecord, { programs }: Contents): void {
  for (const [name, sha256] of Object.entries(record.programs))
    if (programs.get(name) !== sha256)
      throw new UpgradeError(
        "not-a-release",
        `${file} is damaged: ${releaseLayout.programs}/${name} has not the digest that its ${releaseLayout.record} names; get it again`,
      );
}

/** The list that a release is published with, if it lies beside the file and names it. */
function checkList(file: string, digest: string): void {
  const list = path.join(path.dirname(file), "SHA256SUMS");
  if (!existsSync(list)) return;
  const lines = readFileSync(list, "utf8").split("\n");
  const line = lines
    .map((text) => /^([0-9a-f]{64}) [ *](.+)$/.exec(text))
    .find((match) => match?.[2] === path.basename(file));
  if (line !== null && line !== undefined && line[1] !== digest)
    throw new UpgradeError("not-a-release", `${file} has not the digest that ${list} names; get both again`);
}
