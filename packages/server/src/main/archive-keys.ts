import { spawn } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import path from "node:path";
import { buffer, text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { ArchiveFlags } from "../node/archive/archive-settings.ts";
import type { ArchiveStore } from "../node/archive/archive-store.ts";
import type { ArchiveEntry } from "../node/archive/archive-work.ts";
import { archiveSettingsOf, openArchive } from "./archive-place.ts";
import { childEnvironment } from "./child-environment.ts";
import type { EngineConfig } from "./engine-config.ts";
import { EngineError } from "./engine-error.ts";
import { layoutOf } from "./layout.ts";
import { OwnedStore } from "./owned-store.ts";
import { findPrograms } from "./programs.ts";
import { assertRootPath } from "./root-files.ts";

/** The ids of an engine's archive keys; the keys themselves stay root's. */
export interface ArchiveKeyIds {
  readonly current: string;
  readonly keys: readonly string[];
}

/** What `ls` and `rotate` need to know. */
export interface ArchiveAccess {
  readonly dataDir: string;
  /** Without them, the archive of the engine that runs in that directory. */
  readonly flags: ArchiveFlags;
  readonly signal: AbortSignal;
}

/** One archive as the index has it, or why its entry cannot be read. */
export interface ListedArchive {
  readonly id: string;
  readonly entry?: ArchiveEntry;
  readonly error?: string;
}

/** The keys of an engine, as `importArchiveKeys` takes them. They open all of its archives. Preconditions: the caller is root. */
export function exportArchiveKeys(dataDir: string): Promise<string> {
  return helper(dataDir, "export", "");
}

/** Adds exported keys to those of an engine. Preconditions: the caller is root. */
export async function importArchiveKeys(dataDir: string, keys: string): Promise<ArchiveKeyIds> {
  return JSON.parse(await helper(dataDir, "import", keys)) as ArchiveKeyIds;
}

/** How the key of every entry was wrapped anew. */
export interface Rotation extends ArchiveKeyIds {
  readonly rewrapped: number;
  /** The entries that no key of this engine opens; they stay as they are. */
  readonly unread: readonly ListedArchive[];
}

/**
 * Makes a key for everything that is written from here on, and wraps the keys of the archives that are there with it; their content stays as it is. Earlier
 * keys stay too. May be repeated after a kill. Preconditions: the caller is root.
 */
export async function rotateArchiveKey({ dataDir, flags, signal }: ArchiveAccess): Promise<Rotation> {
  const store = storeOf(dataDir, flags);
  // Before the key: a store that cannot be read must not leave an engine with a key for each attempt.
  await store.list("index/", signal);
  const ids = JSON.parse(await helper(dataDir, "rotate", "")) as ArchiveKeyIds;
  const sealed = await readEntries(store, signal);
  const answers = JSON.parse(await helper(dataDir, "rewrap", JSON.stringify(sealed))) as Sealed[];
  const before = new Map(sealed.map((entry) => [entry.id, entry.sealed]));
  const changed = answers.filter((entry) => entry.error === undefined && entry.sealed !== before.get(entry.id));
  for (const { id, sealed: entry = "" } of changed) await store.putText(nameOf(id), entry, signal);
  await undoWhereRemoved(store, new Set(changed.map(({ id }) => id)), signal);
  const unread = answers.flatMap(({ id, error }) => (error === undefined ? [] : [{ id, error }]));
  return { ...ids, rewrapped: changed.length, unread };
}

/**
 * Removes the keys that no entry of the archive needs, all but the current one and the one before it. Preconditions: the caller is root, and the engine has had no other archive whose
 * entries need them.
 */
export async function retireArchiveKeys({ dataDir, flags, signal }: ArchiveAccess): Promise<ArchiveKeyIds> {
  const entries = await readEntries(storeOf(dataDir, flags), signal);
  const needed = new Set(entries.map(({ sealed = "" }) => keyIdOf(sealed)));
  return JSON.parse(await helper(dataDir, "retire", JSON.stringify([...needed]))) as ArchiveKeyIds;
}

/** Everything that the index of an archive tells, from store and keys alone. Preconditions: the caller is root. */
export async function listArchive({ dataDir, flags, signal }: ArchiveAccess): Promise<readonly ListedArchive[]> {
  const sealed = await readEntries(storeOf(dataDir, flags), signal);
  const opened = JSON.parse(await helper(dataDir, "open", JSON.stringify(sealed))) as Opened[];
  const lengths = new Map(sealed.map((entry) => [entry.id, Buffer.byteLength(entry.sealed ?? "")]));
  return opened.map(({ id, index, error }) => {
    if (index === undefined) return { id, error: error ?? "" };
    const storedBytes = index.parts.reduce((sum, part) => sum + part.sizeBytes, lengths.get(id) ?? 0);
    const contentBytes = index.parts.reduce((sum, part) => sum + part.contentBytes, 0);
    return { id, entry: { ...index.entry.entry, storedBytes, contentBytes } };
  });
}

interface Sealed {
  readonly id: string;
  readonly sealed?: string;
  readonly error?: string;
}

interface Opened {
  readonly id: string;
  readonly error?: string;
  readonly index?: {
    readonly entry: { readonly entry: Omit<ArchiveEntry, "storedBytes" | "contentBytes"> };
    readonly parts: readonly { readonly sizeBytes: number; readonly contentBytes: number }[];
  };
}

function storeOf(dataDir: string, flags: ArchiveFlags): ArchiveStore {
  const settings = archiveSettingsOf(flags) ?? runningConfig(dataDir)?.archive;
  if (settings === undefined)
    throw new EngineError(
      "no engine with an archive runs in this data directory; name it with --archive, as it was for up",
      { code: "usage" },
    );
  const store = openArchive(settings);
  if (settings.kind === "s3") return store;
  assertRootPath(settings.directory);
  const owner = statSync(path.join(settings.directory, "index"), { throwIfNoEntry: false });
  if (owner === undefined)
    throw new EngineError(`${settings.directory} is no archive: it has no index`, { code: "usage" });
  return new OwnedStore(store, owner);
}

function runningConfig(dataDir: string): Pick<EngineConfig, "archive"> | undefined {
  try {
    return JSON.parse(readFileSync(layoutOf(dataDir).configFile, "utf8")) as Pick<EngineConfig, "archive">;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function nameOf(id: string): string {
  return `index/${id}.json`;
}

async function readEntries(store: ArchiveStore, signal: AbortSignal): Promise<readonly Sealed[]> {
  const entries: Sealed[] = [];
  for (const name of await store.list("index/", signal)) {
    const id = /^index\/([a-z0-9-]+)\.json$/.exec(name)?.[1];
    const sealed = id === undefined ? undefined : await store.getText(name, signal);
    if (id !== undefined && sealed !== undefined) entries.push({ id, sealed });
  }
  return entries;
}

function keyIdOf(sealed: string): string {
  return (JSON.parse(sealed) as { readonly keyId: string }).keyId;
}

/** Longer than a store takes to remove one part. */
const lookEveryMs = 1000;

/**
 * A node removes the entry of an archive and then its parts. Where it did so between our reading and our writing, the entry is back: it goes once no part of it is left. Parts that
 * do not become fewer are not being removed.
 */
async function undoWhereRemoved(store: ArchiveStore, ids: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
  if (ids.size === 0) return;
  let before = await countParts(store, signal);
  for (let isMoving = true; isMoving; ) {
    await sleep(lookEveryMs, undefined, { signal });
    const after = await countParts(store, signal);
    isMoving = [...ids].some((id) => (after.get(id) ?? 0) < (before.get(id) ?? 0));
    before = after;
  }
  for (const id of ids) if (!before.has(id)) await store.remove(nameOf(id), signal);
}

async function countParts(store: ArchiveStore, signal: AbortSignal): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const name of await store.list("parts/", signal)) {
    const id = name.split("/")[1] ?? "";
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

/** Runs the helper's own command, which has the keys; what it says on failure is complete. */
async function helper(dataDir: string, verb: string, input: string): Promise<string> {
  const args = ["archive", "-data-dir", layoutOf(dataDir).dataDir, verb];
  const child = spawn(findPrograms().sandboxHost, args, {
    stdio: ["pipe", "pipe", "pipe"],
    env: childEnvironment(process.env),
  });
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  child.stdin.on("error", () => child.stdin.destroy());
  child.stdin.end(input);
  const [said, complaint, code] = await Promise.all([buffer(child.stdout), text(child.stderr), exited]);
  if (code === 0) return said.toString("utf8");
  throw new EngineError(complaint.trim().replace(/^sandbox-host: /, ""), { code: "failed" });
}
