import { mkdirSync, realpathSync } from "node:fs";
import path from "node:path";
import { assertReachable } from "./data-dir.ts";
import type { Layout } from "./layout.ts";
import type { RoleName, RoleUsers } from "./role-user.ts";
import { assertRootPath, ensureRoleDirectory, ensureRootDirectory } from "./root-files.ts";

/** Others pass through to what is theirs, and list nothing. */
const passage = 0o711;

/** Makes the two directories that everything else of an engine lies in. Preconditions: the caller is root. */
export function ensureBaseDirectories({ dataDir, runDir }: Layout): void {
  for (const dir of [dataDir, runDir]) {
    assertRootPath(dir);
    mkdirSync(dir, { recursive: true, mode: 0o755 });
    // What was missing before may have been made by somebody else meanwhile.
    assertRootPath(dir);
    // An operator may have put a link in its place.
    ensureRootDirectory(realpathSync(dir), passage);
  }
}

/** Makes the directory of logs. Preconditions: the base directories are there. */
export function ensureLogsDirectory({ logsDir }: Layout): void {
  ensureRootDirectory(logsDir, 0o700);
}

/** Makes the directories of an engine, those of the roles as theirs. Preconditions: the caller is root. */
export function makeDirectories(layout: Layout, users: Partial<RoleUsers>): void {
  ensureBaseDirectories(layout);
  ensureLogsDirectory(layout);
  ensureRootDirectory(path.dirname(layout.adminKubeconfig), 0o700);
  ensureRootDirectory(path.join(layout.dataDir, "engine"), passage);
  for (const [role, user] of Object.entries(users)) {
    assertReachable(layout.dataDir, user);
    const { dataDir, runDir } = layout.roles[role as RoleName];
    ensureRoleDirectory(dataDir, user, 0o700);
    // Control alone connects to the router's socket: what is made in a directory with the group bit set gets its group.
    if (role === "router" && users.control !== undefined)
      ensureRoleDirectory(runDir, { uid: user.uid, gid: users.control.gid }, 0o2710);
    else ensureRoleDirectory(runDir, user, 0o700);
  }
}
