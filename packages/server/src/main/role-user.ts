import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { flushCompileCache } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { addSystemUser } from "./system-user-files.ts";

const execute = promisify(execFile);

/** The unprivileged processes of an engine. Each has a user of its own: what one can read, the next cannot. */
export const roleNames = ["control", "router", "node"] as const;

/** One of them. */
export type RoleName = (typeof roleNames)[number];

/** The numeric identity of a role. */
export interface RoleUser {
  readonly uid: number;
  readonly gid: number;
}

/** The identity of every role. */
export type RoleUsers = Readonly<Record<RoleName, RoleUser>>;

const userNameOf = (role: RoleName): string => `agent-sandbox-${role}`;

/** Finds the system users of all roles, making them on first use. Preconditions: the caller is root. */
export async function ensureRoleUsers(): Promise<RoleUsers> {
  const users: Partial<Record<RoleName, RoleUser>> = {};
  // One after the other: each takes the lock of /etc/passwd.
  for (const role of roleNames) users[role] = await ensureRoleUser(role);
  return users as RoleUsers;
}

/** Finds the system user of a role, making it on first use. Preconditions: the caller is root. */
export async function ensureRoleUser(role: RoleName): Promise<RoleUser> {
  const name = userNameOf(role);
  return findUser(name) ?? (await createUser(name));
}

/** The system user of a role where it is there already. */
export function tryRoleUser(role: RoleName): RoleUser | undefined {
  return findUser(userNameOf(role));
}

function findUser(name: string): RoleUser | undefined {
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(":") ?? [];
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}

// useradd refuses while another one holds the lock of /etc/passwd, which takes it a tenth of a second: engines that start at once wait for each other.
const createTriesMax = 30;
const createRetryMs = 100;

async function createUser(name: string): Promise<RoleUser> {
  const args = [
    "--system",
    "--user-group",
    "--no-create-home",
    "--home-dir",
    "/nonexistent",
    "--shell",
    "/usr/sbin/nologin",
  ];
  for (let tries = 1; ; tries += 1) {
    const cause: unknown = await execute("useradd", [...args, name])
      .catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
        addSystemUser(name);
      })
      .then(
        () => undefined,
        (error: unknown) => error,
      );
    // Another process made it meanwhile.
    const made = findUser(name);
    if (made !== undefined) return made;
    if (tries === createTriesMax)
      throw new Error(
        `cannot make the system user ${name}; make it by hand with useradd --system --user-group ${name}`,
        {
          cause,
        },
      );
    await sleep(createRetryMs);
  }
}

/** Gives up root for good. Preconditions: everything this process will ever load is loaded. */
export function dropPrivileges({ uid, gid }: RoleUser): void {
  if (process.getuid?.() !== 0) return;
  if (uid === 0 || gid === 0) throw new Error(`bug: a role would keep root: user ${uid}, group ${gid}`);
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
