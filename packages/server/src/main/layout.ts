import path from "node:path";
import { recordFileIn, runDirOf } from "@agent-sandbox/kube/engine-record";
import { type RoleName, roleNames } from "./role-user.ts";

/** What belongs to one role alone. */
export interface RolePlaces {
  /** Survives a reboot. */
  readonly dataDir: string;
  /** Its sockets. */
  readonly runDir: string;
  /** The credentials that were handed to it: a file of root's, which the role's group may read. */
  readonly credentialsFile: string;
}

/**
 * Where everything of one engine lies; all of it follows from the data directory. Data and run directory belong to root, and so does
 * everything in them but the directories of the roles, in which root opens nothing.
 */
export interface Layout {
  readonly dataDir: string;
  /** Six hex digits of the data directory's path: part of every name the engine gives to something on the host. */
  readonly instance: string;
  /** Sockets and process records: gone after a reboot, as they must be. */
  readonly runDir: string;
  /** The privileged helper's records and state. */
  readonly hostDir: string;
  readonly roles: Readonly<Record<RoleName, RolePlaces>>;
  readonly dbFile: string;
  /** Keys and certificates of control. */
  readonly pkiDir: string;
  /** For root: the administrator's credentials. */
  readonly adminKubeconfig: string;
  readonly logsDir: string;
  readonly hostSocket: string;
  readonly nodeSocket: string;
  readonly routerSocket: string;
  /** Start parameters of the roles, which they read while they are root. */
  readonly configFile: string;
  /** Written by the supervisor at every start: which version the data is of, and which was there before. */
  readonly versionFile: string;
  /** Written by the supervisor once everything answers; names the processes and addresses. */
  readonly recordFile: string;
}

/** Derives the layout of an engine from its data directory. */
export function layoutOf(dataDir: string): Layout {
  const absolute = path.resolve(dataDir);
  const runDir = runDirOf(absolute);
  const places = (role: RoleName): RolePlaces => ({
    dataDir: path.join(absolute, "engine", role),
    runDir: path.join(runDir, role),
    credentialsFile: path.join(runDir, `${role}-credentials.json`),
  });
  const roles = Object.fromEntries(roleNames.map((role) => [role, places(role)])) as Layout["roles"];
  return {
    dataDir: absolute,
    instance: path.basename(runDir),
    runDir,
    hostDir: path.join(absolute, "host"),
    roles,
    dbFile: path.join(roles.control.dataDir, "db/store.sqlite"),
    pkiDir: path.join(roles.control.dataDir, "pki"),
    adminKubeconfig: path.join(absolute, "pki/admin.kubeconfig"),
    logsDir: path.join(absolute, "logs"),
    hostSocket: path.join(runDir, "host.sock"),
    nodeSocket: path.join(roles.node.runDir, "node.sock"),
    routerSocket: path.join(roles.router.runDir, "router.sock"),
    configFile: path.join(runDir, "config.json"),
    versionFile: path.join(absolute, "version.json"),
    recordFile: recordFileIn(runDir),
  };
}
