import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { childEnvironment } from "./child-environment.ts";
import { EngineError } from "./engine-error.ts";
import type { Layout } from "./layout.ts";
import { ensureRoleUser, type RoleUser } from "./role-user.ts";
import { openedByName, parseCopies } from "./store-versions.ts";

const execute = promisify(execFile);

/** More than the copy of any store takes. */
const programMsMax = 60_000;

// The store and its copies lie in control's directory, where root opens nothing: what is done there is done by programs that run as control.

interface Db extends Pick<Layout, "dbFile"> {
  /** Whose the directory is; control unless named. */
  readonly user?: RoleUser;
}

/** The newest copy of the store as a version left it; undefined where there is none. Preconditions: the caller is root. */
export async function findStoreCopy(layout: Db, version: string): Promise<string | undefined> {
  const { stdout } = await asControl(layout, "ls 2>/dev/null || true");
  return parseCopies(stdout.split("\n")).find((copy) => copy.version === version)?.name;
}

/**
 * Puts a copy in the place of the store, which stays beside it under the name `kept`. Preconditions: the caller is root, no engine runs, and
 * `to` is the version that the copy is of.
 */
export async function restoreStore(
  layout: Db,
  { copy, to, kept }: { copy: string; to: string; kept: string },
): Promise<void> {
  // A store that was closed has no log beside it. The rename takes its place in one step; a link keeps it under its other name.
  const script = `set -eu
    if [ -s store.sqlite-wal ]; then echo "the store was not closed; start the engine once more and try again" >&2; exit 1; fi
    cp -- "$1" store.sqlite.restored && sync store.sqlite.restored
    ln -- store.sqlite "$2"
    mv -f -- store.sqlite.restored store.sqlite
    printf %s "$3" >"$4"`;
  await asControl(layout, script, copy, kept, to, openedByName).catch((cause: unknown) => {
    throw storeError(`the copy ${copy} of the store could not be restored`, cause);
  });
}

/**
 * Undoes `restoreStore`, at whatever step it ended: the kept store has its place again, and what the other version wrote goes with its log,
 * which would be read into the kept store otherwise. Preconditions: as there, and no process has the store open; `of` is the version of the
 * kept store.
 */
export async function undoRestore(layout: Db, { kept, of }: { kept: string; of: string }): Promise<void> {
  const script = `set -eu
    if [ ! -e "$1" ]; then exit 0; fi
    rm -f -- store.sqlite-wal store.sqlite-shm store.sqlite.restored
    mv -f -- "$1" store.sqlite
    printf %s "$2" >"$3"`;
  await asControl(layout, script, kept, of, openedByName).catch((cause: unknown) => {
    throw storeError(`the store ${kept} could not be put back`, cause);
  });
}

function storeError(message: string, cause: unknown): EngineError {
  const { stderr = "" } = cause as { stderr?: string };
  return new EngineError(`${message}: ${stderr.trim()}`, { code: "failed", cause });
}

async function asControl({ dbFile, user }: Db, script: string, ...args: string[]): Promise<{ stdout: string }> {
  const { uid, gid } = user ?? (await ensureRoleUser("control"));
  const options = { uid, gid, cwd: "/", env: childEnvironment(process.env), timeout: programMsMax };
  return execute("sh", ["-c", `cd -- "$0" && { ${script}\n}`, path.dirname(dbFile), ...args], options);
}
