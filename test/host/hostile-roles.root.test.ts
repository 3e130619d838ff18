import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { ensureRoleUsers, type RoleName, type RoleUsers, roleNames } from "../../packages/server/src/main/role-user.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { killRole, roleProcess } from "../node/engine-processes.ts";
import { RealEngine, until } from "../node/real-engine.ts";
import type { Attempt, Outcome } from "./attempts.ts";

let engine: RealEngine;
let users: RoleUsers;
/** What root alone owns, and what every planted link leads to. */
let canary: string;
let untouched: string;

beforeAll(async () => {
  engine = await RealEngine.open();
  users = await ensureRoleUsers();
  canary = mkdtempSync("/tmp/as-canary-");
  writeFileSync(path.join(canary, "file"), "untouched\n", { mode: 0o600 });
  mkdirSync(path.join(canary, "directory"), { mode: 0o700 });
  untouched = stateOfCanary();
}, 120_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  rmSync(canary, { recursive: true });
}, 120_000);

/** Whatever is done to a file but reading it changes the last of its times. */
function stateOfCanary(): string {
  return ["file", "directory"]
    .map((name) => statSync(path.join(canary, name)))
    .map(({ uid, gid, mode, size, ctimeMs }) => [uid, gid, mode.toString(8), size, ctimeMs].join(" "))
    .concat(readFileSync(path.join(canary, "file"), "utf8"), readdirSync(path.join(canary, "directory")))
    .join("\n");
}

/** Tries things inside the engine's namespaces as a user. */
function tryAs({ uid, gid }: { uid: number; gid: number }, attempts: readonly Attempt[]): Outcome[] {
  const program = path.join(import.meta.dirname, "attempts.ts");
  const argv = [process.execPath, "--disable-warning=ExperimentalWarning", program, String(uid), String(gid)];
  const { status, stdout, stderr } = engine.place.run(argv, { input: JSON.stringify(attempts) });
  if (status !== 0) throw new Error(`the attempts ended with ${status}: ${stderr}`);
  return JSON.parse(stdout) as Outcome[];
}

/** How each attempt of a table ended, by its name. */
function outcomesAs(
  user: { uid: number; gid: number },
  table: Readonly<Record<string, Attempt>>,
): Record<string, Outcome> {
  const outcomes = tryAs(user, Object.values(table));
  return Object.fromEntries(Object.keys(table).map((name, index) => [name, outcomes[index] ?? ""]));
}

function pidOf(role: Parameters<typeof roleProcess>[1]): number {
  const pid = roleProcess(engine, role);
  if (pid === undefined) throw new Error(`${role} does not run`);
  return pid;
}

const everybody = [...roleNames, "a stranger"] as const;
const userOf = (who: (typeof everybody)[number]): { uid: number; gid: number } =>
  who === "a stranger" ? { uid: 65_534, gid: 65_534 } : users[who];

/** What is to be kept from everybody but its owner; `undefined` is root alone. */
function secrets(): Readonly<Record<string, { readonly attempt: Attempt; readonly owner?: RoleName }>> {
  const { dataDir, runDir, roles, pkiDir, dbFile, logsDir, hostDir, ...files } = layoutOf(engine.dataDir);
  const read = (file: string, owner?: RoleName) =>
    ({ attempt: { do: "read", path: file }, ...(owner && { owner }) }) as const;
  const list = (dir: string, owner?: RoleName) =>
    ({ attempt: { do: "list", path: dir }, ...(owner && { owner }) }) as const;
  return {
    "authority's key": read(path.join(pkiDir, "ca-1.key"), "control"),
    "service accounts' key": read(path.join(pkiDir, "sa.key"), "control"),
    "encryption key": read(path.join(pkiDir, "secrets.key"), "control"),
    "administrator's key": read(path.join(pkiDir, "client-admin.key"), "control"),
    database: read(dbFile, "control"),
    "router's credentials": read(roles.router.credentialsFile, "router"),
    "key of links": read(path.join(roles.router.dataDir, "links.key"), "router"),
    "node's credentials": read(roles.node.credentialsFile, "node"),
    "records of pods": list(path.join(roles.node.dataDir, "sandboxes"), "node"),
    "administrator's kubeconfig": read(files.adminKubeconfig),
    "engine's record": read(files.recordFile),
    configuration: read(files.configFile),
    lock: read(path.join(dataDir, "engine.lock")),
    "control's log": read(path.join(logsDir, "control.log")),
    logs: list(logsDir),
    "helper's state": list(hostDir),
    "helper's records": list(path.join(hostDir, "containers")),
    "runtime's state": list(path.join(runDir, "runsc")),
    "data directory": list(dataDir),
    "run directory": list(runDir),
  };
}

test.each(everybody)("hostile roles: %s reads what is its own and nothing of the others", (who) => {
  const table = Object.fromEntries(Object.entries(secrets()).map(([name, { attempt }]) => [name, attempt]));
  const expected = Object.entries(secrets()).map(([name, { owner }]) => [name, owner === who ? "done" : "EACCES"]);
  expect(outcomesAs(userOf(who), table)).toEqual(Object.fromEntries(expected));
});

test.each(everybody)("hostile roles: %s opens the sockets that its work needs and no other", (who) => {
  const { hostSocket, nodeSocket, routerSocket } = layoutOf(engine.dataDir);
  const table = {
    helper: { do: "ask", path: hostSocket },
    node: { do: "connect", path: nodeSocket },
    router: { do: "connect", path: routerSocket },
  } as const;
  expect(outcomesAs(userOf(who), table)).toEqual({
    helper: who === "node" ? "200" : "EACCES",
    node: who === "node" ? "done" : "EACCES",
    router: who === "router" || who === "control" ? "done" : "EACCES",
  });
});

test("hostile roles: the helper asks the kernel who speaks, and the group that opens its socket is not enough", () => {
  const { hostSocket } = layoutOf(engine.dataDir);
  const outcomes = roleNames.map((role) =>
    tryAs({ uid: users[role].uid, gid: users.node.gid }, [{ do: "ask", path: hostSocket }]),
  );
  expect(outcomes.flat()).toEqual(roleNames.map((role) => (role === "node" ? "200" : "403")));
});

/** What would lead root, or another role, elsewhere. */
function detours(own: RoleName): Readonly<Record<string, Attempt>> {
  const { dataDir, runDir, roles, logsDir, hostDir, ...files } = layoutOf(engine.dataDir);
  const other = roles[own === "router" ? "control" : "router"];
  const away = path.join(roles[own].runDir, "away");
  const planted = path.join(canary, "file");
  return {
    "swap the runtime's state": { do: "rename", path: path.join(runDir, "runsc"), to: away },
    "swap the helper's socket": { do: "rename", path: files.hostSocket, to: away },
    "swap its own run directory": { do: "rename", path: roles[own].runDir, to: `${roles[own].runDir}.away` },
    "swap its own data directory": { do: "rename", path: roles[own].dataDir, to: `${roles[own].dataDir}.away` },
    "swap the logs": { do: "rename", path: logsDir, to: `${logsDir}.away` },
    "swap another's run directory": { do: "rename", path: other.runDir, to: away },
    "plant a link in the run directory": { do: "link", path: path.join(runDir, "host.sock.tmp"), to: planted },
    "plant a link in the data directory": { do: "link", path: path.join(dataDir, "network.json.new"), to: planted },
    "plant a log": { do: "link", path: path.join(logsDir, `${own}.log`), to: planted },
    "plant a record of the helper": { do: "make", path: path.join(hostDir, "containers", "planted") },
    "plant a program of sandboxes": { do: "link", path: path.join(dataDir, "bin", "planted"), to: planted },
    "plant a link at another's": { do: "link", path: path.join(other.dataDir, "planted"), to: planted },
    "plant a socket of another's": { do: "link", path: path.join(other.runDir, "planted.sock"), to: planted },
    "write the configuration": { do: "append", path: files.configFile },
    "write its own credentials": { do: "append", path: roles.router.credentialsFile },
    "remove the engine's record": { do: "remove", path: files.recordFile },
    "make a directory in the run directory": { do: "make", path: path.join(runDir, "planted") },
    "make a directory beside the roles'": { do: "make", path: path.join(dataDir, "engine", "planted") },
  };
}

test.each(roleNames)("hostile roles: %s can rename, replace and plant nothing outside its own directories", (own) => {
  const table = detours(own);
  const outcomes = outcomesAs(users[own], table);
  expect(outcomes).toEqual(Object.fromEntries(Object.keys(table).map((name) => [name, "EACCES"])));
});

test.each(roleNames)("hostile roles: %s has no power over the other processes", (own) => {
  const others = (["supervisor", "sandbox-host", ...roleNames] as const).filter((name) => name !== own);
  const pids = others.map(pidOf);
  const signals = tryAs(
    users[own],
    pids.map((pid) => ({ do: "signal", pid })),
  );
  expect(signals).toEqual(others.map(() => "EPERM"));
  const memory = tryAs(
    users[own],
    pids.map((pid) => ({ do: "read", path: `/proc/${pid}/environ` })),
  );
  expect(memory).toEqual(others.map(() => "EACCES"));
});

/** Links beside everything that a role has. */
function plantBeside(own: RoleName): Extract<Attempt, { to: string }>[] {
  const { roles } = layoutOf(engine.dataDir);
  const inside = { control: ["", "pki", "db"], router: [""], node: ["", "sandboxes"] }[own];
  const places = [roles[own].runDir, ...inside.map((dir) => path.join(roles[own].dataDir, dir))];
  return places.flatMap((dir) => [
    { do: "link", path: path.join(dir, "planted"), to: path.join(canary, "file") },
    { do: "link", path: path.join(dir, "planted.d"), to: path.join(canary, "directory") },
  ]);
}

test("hostile roles: links beside their files are followed by nobody when roles and the engine start again", async () => {
  for (const own of roleNames) {
    const attempts = plantBeside(own);
    expect(tryAs(users[own], attempts)).toEqual(attempts.map(() => "done"));
  }
  for (const own of roleNames) await killRole(engine, own);
  expect(stateOfCanary()).toBe(untouched);
  engine.cli("down");
  engine.up();
  await engine.connect();
  expect(stateOfCanary()).toBe(untouched);
  for (const own of roleNames) {
    const removals = plantBeside(own).map(({ path: file }) => ({ do: "remove", path: file }) as const);
    expect(tryAs(users[own], removals)).toEqual(removals.map(() => "done"));
  }
});

/** Everything that a role keeps, each put aside and a link in its place. */
function replaceOwn(own: RoleName): { readonly name: string; readonly target: string }[] {
  const { roles, pkiDir, dbFile } = layoutOf(engine.dataDir);
  const dirs = { control: [pkiDir, path.dirname(dbFile)], router: [roles.router.dataDir], node: [roles.node.dataDir] }[
    own
  ];
  return dirs.flatMap((dir) =>
    readdirSync(dir, { withFileTypes: true }).map((entry) => ({
      name: path.join(dir, entry.name),
      target: path.join(canary, entry.isDirectory() ? "directory" : "file"),
    })),
  );
}

test.each(roleNames)(
  "hostile roles: links in place of all that %s keeps are followed with its own rights alone",
  async (own) => {
    const replaced = replaceOwn(own);
    const plant = replaced.flatMap(({ name, target }): Attempt[] => [
      { do: "rename", path: name, to: `${name}.aside` },
      { do: "link", path: name, to: target },
    ]);
    expect(tryAs(users[own], plant)).toEqual(plant.map(() => "done"));
    const restarts = (): number => engine.log("supervisor").split(`"process":"${own}","how"`).length;
    const before = restarts();
    process.kill(pidOf(own), "SIGKILL");
    await until(() => restarts() >= before + 2);
    expect(stateOfCanary()).toBe(untouched);
    const restore = replaced.flatMap(({ name }): Attempt[] => [
      { do: "remove", path: name },
      { do: "rename", path: `${name}.aside`, to: name },
    ]);
    expect(tryAs(users[own], restore)).toEqual(restore.map(() => "done"));
    await until(() =>
      /"pid":\d+,"msg":"process is ready"/.test(engine.log("supervisor").split(`"process":"${own}"`).at(-1) ?? ""),
    );
    expect(stateOfCanary()).toBe(untouched);
  },
);

test("hostile roles: root's commands speak to no other socket that the node's user puts in the place of its own", async () => {
  const { nodeSocket } = layoutOf(engine.dataDir);
  let callers = 0;
  const server = net.createServer((socket) => {
    callers += 1;
    socket.destroy();
  });
  const roots = path.join(canary, "root.sock");
  await new Promise<void>((resolve) => server.listen(roots, resolve));
  const list = [process.execPath, path.join(rootDir, "packages/cli/src/main.ts"), "image", "ls"];
  const listed = () => engine.place.run([...list, "--data-dir", engine.dataDir]);
  const aside = `${nodeSocket}.aside`;
  const plant: Attempt[] = [
    { do: "rename", path: nodeSocket, to: aside },
    { do: "link", path: nodeSocket, to: roots },
  ];
  expect(tryAs(users.node, plant)).toEqual(["done", "done"]);
  expect(listed().stderr).toContain(`${nodeSocket} is not the node's socket`);
  expect(callers).toBe(0);
  expect(tryAs(users.node, [{ do: "rename", path: aside, to: nodeSocket }])).toEqual(["done"]);
  expect(listed().status).toBe(0);
  await new Promise((resolve) => server.close(resolve));
});

test("hostile roles: metrics are served to those who may get them from the API, and to no other user of the machine", async () => {
  const url = "https://127.0.0.1:7090/metrics";
  const ask = (...flags: readonly string[]): string[] => {
    const argv = ["curl", "--silent", "--insecure", "--write-out", "\\n%{http_code}", ...flags, url];
    return engine.place.must(...argv).split("\n");
  };
  await engine.kubectl("create", "serviceaccount", "scraper");
  const token = async (): Promise<string> => (await engine.kubectl("create", "token", "scraper")).trim();
  const bearer = ["--header", `Authorization: Bearer ${await token()}`];
  expect(ask().at(-1)).toBe("403");
  expect(ask("--header", "Authorization: Bearer nonsense").at(-1)).toBe("401");
  expect(ask(...bearer).at(-1)).toBe("403");
  const binding = ["create", "clusterrolebinding", "scraper", "--clusterrole=system:monitoring"];
  await engine.kubectl(...binding, "--serviceaccount=default:scraper");
  await until(() => ask(...bearer).at(-1) === "200");
  expect(ask(...bearer)).toContain("# TYPE process_cpu_seconds_total counter");
});
