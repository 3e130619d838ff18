import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { flushCompileCache } from "node:module";

/** The numeric identity of the engine's unprivileged processes. */
export interface EngineUser {
  readonly uid: number;
  readonly gid: number;
}

const userName = "agent-sandbox";

/** Finds the system user `agent-sandbox`, making it on first use. Preconditions: the caller is root. */
export function ensureEngineUser(): EngineUser {
  return findEngineUser() ?? createEngineUser();
}

function findEngineUser(): EngineUser | undefined {
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith(`${userName}:`));
  const [, , uid, gid] = line?.split(":") ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}

function createEngineUser(): EngineUser {
  const args = [
    "--system",
    "--user-group",
    "--no-create-home",
    "--home-dir",
    "/nonexistent",
    "--shell",
    "/usr/sbin/nologin",
  ];
  try {
    execFileSync("useradd", [...args, userName], { stdio: ["ignore", "ignore", "pipe"] });
  } catch (cause) {
    // Two engines started at once: the other one made the user.
    const made = findEngineUser();
    if (made !== undefined) return made;
    throw new Error(`cannot make the system user ${userName}; make it by hand with useradd --system ${userName}`, {
      cause,
    });
  }
  const made = findEngineUser();
  if (made === undefined) throw new Error(`useradd made no user ${userName} in /etc/passwd`);
  return made;
}

/** Gives up root for good. Preconditions: everything this process will ever load is loaded. */
export function dropPrivileges({ uid, gid }: EngineUser): void {
  if (process.getuid?.() !== 0) return;
  // The cache belongs to root: at the process's end, where Node writes it by itself, it would be too late.
  flushCompileCache();
  process.setgroups?.([gid]);
  process.setgid?.(gid);
  process.setuid?.(uid);
  try {
    process.setuid?.(0);
  } catch {
    return;
  }
  throw new Error("root could be taken back after it was given up");
}
