import { closeSync, existsSync, openSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { writeRecord } from "../durable/record-file.ts";
import { copyDatabase } from "../store/database-copy.ts";
import type { Logger } from "../telemetry/logger.ts";

/** Names the version that opened the store last; beside the store, and control's like it. */
export const openedByName = "opened-by";

/** As many as two upgrades and the way back from them make. */
const copiesMax = 3;

/** What is known when control starts. */
export interface StoreOpening {
  readonly dbFile: string;
  /** The version that is about to open it. */
  readonly version: string;
  readonly nowMs: number;
  readonly logger: Logger;
}

/**
 * Where another version opened the store last, a copy of what it left is kept, before this one writes to it: the way back, also to a version
 * that could not read what this one writes. Makes the store's directory. Preconditions: no process has the store open.
 */
export async function keepStoreOfOtherVersion({ dbFile, version, nowMs, logger }: StoreOpening): Promise<void> {
  const dir = path.dirname(dbFile);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const openedBy = path.join(dir, openedByName);
  const last = existsSync(openedBy) ? readFileSync(openedBy, "utf8").trim() : undefined;
  if (last === version) return;
  if (existsSync(dbFile)) {
    const copy = path.join(dir, copyName(last ?? "unknown", nowMs));
    // Under another name first: a copy with its own name is whole.
    const partial = `${copy}.new`;
    await rm(partial, { force: true });
    closeSync(openSync(partial, "wx", 0o600));
    await copyDatabase(dbFile, partial);
    await rename(partial, copy);
    logger.info({ copy, last, version }, "kept the store as the version before left it");
    for (const old of copiesIn(dir).slice(copiesMax)) await rm(path.join(dir, old.name), { force: true });
  }
  await writeRecord(openedBy, version);
}

/** A copy of the store, by its name. */
interface StoreCopy {
  readonly name: string;
  readonly version: string;
  readonly madeMs: number;
}

/** The name of a copy of the store as a version left it. */
export function copyName(version: string, madeMs: number): string {
  return `store-of-${version}-at-${madeMs}.sqlite`;
}

/** Newest first. */
function copiesIn(dir: string): readonly StoreCopy[] {
  return parseCopies(readdirSync(dir));
}

/** The copies among the names of a directory, newest first. */
export function parseCopies(names: readonly string[]): readonly StoreCopy[] {
  const found = names.flatMap((name): StoreCopy[] => {
    const [, version, made] = /^store-of-(.+)-at-(\d+)\.sqlite$/.exec(name) ?? [];
    return version === undefined ? [] : [{ name, version, madeMs: Number(made) }];
  });
  return found.toSorted((a, b) => b.madeMs - a.madeMs);
}
