import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { identifyProcess } from "@agent-sandbox/kube/engine-record";

// The numbers that useradd --system takes, from the top: those below are Debian's own.
const systemIdMax = 999;
const systemIdMin = 100;

/**
 * Adds a system user with a group of the same name to the files of `etcDir`, for machines without useradd; what an interrupted call has
 * added already stays and is completed. Throws with EEXIST while another program changes the files.
 */
export function addSystemUser(name: string, etcDir = "/etc"): void {
  const file = (base: string): string => path.join(etcDir, base);
  using _lock = lockFile(file("passwd"));
  if (entryOf(file("passwd"), name) !== undefined) return;
  const gid = entryOf(file("group"), name)?.[2];
  const userIds = fieldsOf(file("passwd"), 2);
  const uid = gid === undefined || userIds.has(gid) ? freeId(userIds.union(fieldsOf(file("group"), 2))) : gid;
  // The group first: a user that is there has all it needs. `!` is a password that nothing matches.
  append(file("group"), [name, "x", uid, ""]);
  append(file("gshadow"), [name, "!", "", ""]);
  append(file("shadow"), [name, "!", "", "", "", "", "", "", ""]);
  append(file("passwd"), [name, "x", uid, gid ?? uid, "", "/nonexistent", "/usr/sbin/nologin"]);
}

function freeId(taken: ReadonlySet<string>): string {
  let id = systemIdMax;
  while (taken.has(String(id))) id -= 1;
  if (id < systemIdMin)
    throw new Error(`no number between ${systemIdMin} and ${systemIdMax} is free for a system user`);
  return String(id);
}

/**
 * Takes the lock that the programs of shadow take: `FILE.lock`, which holds the pid of its owner from the first moment, because it is
 * linked from a finished file. The lock of a process that is gone is taken over, as they do.
 */
function lockFile(target: string): Disposable {
  const [lock, own] = [`${target}.lock`, `${target}.${process.pid}`];
  writeFileSync(own, String(process.pid), { mode: 0o600 });
  try {
    if (isAbandoned(lock)) rmSync(lock);
    linkSync(own, lock);
  } finally {
    rmSync(own);
  }
  return { [Symbol.dispose]: () => rmSync(lock) };
}

/** A lock without a pid may be anyone's. One with our own is of a process that had the number before: this one takes one lock at a time. */
function isAbandoned(lock: string): boolean {
  const pid = existsSync(lock) ? /^\d+/.exec(readFileSync(lock, "utf8"))?.[0] : undefined;
  return pid !== undefined && (Number(pid) === process.pid || identifyProcess(Number(pid)) === undefined);
}

/** The fields of the line that begins with a name. */
function entryOf(file: string, name: string): readonly string[] | undefined {
  return linesOf(file).find(([first]) => first === name);
}

/** One field of every line. */
function fieldsOf(file: string, index: number): ReadonlySet<string> {
  return new Set(linesOf(file).map((fields) => fields[index] ?? ""));
}

/** Empty where there is no such file. */
function linesOf(file: string): (readonly string[])[] {
  const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n") : [];
  return lines.map((line) => line.split(":"));
}

/** Adds a line, unless its name has one, by a new file with the old one's owner and mode, so that readers see all of it or none. */
function append(file: string, fields: readonly [name: string, ...rest: string[]]): void {
  if (!existsSync(file) || entryOf(file, fields[0]) !== undefined) return;
  const { mode, uid, gid } = statSync(file);
  const before = readFileSync(file, "utf8");
  const partial = `${file}.agent-sandbox`;
  writeFileSync(partial, `${before}${before === "" || before.endsWith("\n") ? "" : "\n"}${fields.join(":")}\n`, {
    mode: 0o600,
  });
  chownSync(partial, uid, gid);
  chmodSync(partial, mode & 0o777);
  renameSync(partial, file);
}
