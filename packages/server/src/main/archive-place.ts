import { closeSync, constants, fstatSync, mkdirSync, openSync, readFileSync, realpathSync } from "node:fs";
import path from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { ArchiveError } from "../node/archive/archive-error.ts";
import {
  type ArchiveFlags,
  type ArchiveSettings,
  openArchiveStore,
  parseArchiveFlags,
} from "../node/archive/archive-settings.ts";
import type { ArchiveStore } from "../node/archive/archive-store.ts";
import { canEnter, closedAncestor } from "./data-dir.ts";
import { EngineError } from "./engine-error.ts";
import type { RoleUser } from "./role-user.ts";
import { assertRootPath, ensureRoleDirectory } from "./root-files.ts";

/** Where the flags put archives. Throws before anything is made where they, or the credentials, make no sense. */
export function archiveSettingsOf(flags: ArchiveFlags): ArchiveSettings | undefined {
  return inWords(() => {
    const settings = parseArchiveFlags(flags);
    if (settings?.kind === "s3") openArchive(settings);
    return settings;
  });
}

/** Makes the directories of an archive that the node writes to; the directory itself stays the operator's. Preconditions: the caller is root. */
export function ensureArchivePlace(settings: ArchiveSettings, node: RoleUser): void {
  if (settings.kind !== "directory") return;
  assertRootPath(settings.directory);
  mkdirSync(settings.directory, { recursive: true, mode: 0o711 });
  assertRootPath(settings.directory);
  const real = realpathSync(settings.directory);
  for (const name of ["index", "parts"]) ensureRoleDirectory(path.join(real, name), node, 0o700);
  const closed = closedAncestor(path.join(settings.directory, "index"), (dir) => canEnter(dir, node));
  if (closed !== undefined)
    throw new EngineError(
      `--archive: the node's unprivileged user cannot enter ${closed}; let others through with: chmod o+x ${closed}, or choose another directory`,
      { code: "denied" },
    );
}

/** The store of an archive. Preconditions: the caller is root where it is object storage. */
export function openArchive(settings: ArchiveSettings): ArchiveStore {
  return inWords(() =>
    openArchiveStore(settings, { clock: systemClock, random: Math.random, readFile: readCredentialsFile }),
  );
}

/** Far more than a key takes. */
const credentialsBytesMax = 64 * 1024;

function readCredentialsFile(file: string): string {
  try {
    const opened = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stats = fstatSync(opened);
      if (!stats.isFile() || stats.size > credentialsBytesMax || (stats.mode & 0o077) !== 0)
        throw new EngineError(
          `--archive-credentials: ${file} must be a file that its owner alone can read; close it with: chmod 600 ${file}`,
          { code: "denied" },
        );
      return readFileSync(opened, "utf8");
    } finally {
      closeSync(opened);
    }
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError(`--archive-credentials: ${(cause as Error).message}`, { code: "usage", cause });
  }
}

function inWords<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    throw new EngineError(error.message, { code: "usage", cause: error });
  }
}
