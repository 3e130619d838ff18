import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { identifyProcess, isAlive } from "@agent-sandbox/kube/engine-record";
import { processTable } from "./footprint.ts";
import type { RealEngine } from "./real-engine.ts";
import { until } from "./real-engine.ts";

/** The processes of an engine. */
export type EngineRole = "supervisor" | "control" | "node" | "router" | "sandbox-host";

const allRoles: readonly EngineRole[] = ["supervisor", "control", "node", "router", "sandbox-host"];

/** Where an engine runs: any process that sees its run directory, and its instance. */
export interface EnginePlace {
  readonly place: { readonly pid: number };
  readonly instance: string;
}

/** Kills processes of an engine and resolves when all of them are gone. */
export async function killAll(engine: RealEngine): Promise<void> {
  const identities = allRoles.flatMap((name) => identifyProcess(roleProcess(engine, name) ?? 0) ?? []);
  for (const { pid } of identities) process.kill(pid, "SIGKILL");
  await until(() => identities.every((one) => !isAlive(one)));
}

/** The process id of one of an engine's processes; undefined while it has none. */
export function roleProcess(engine: EnginePlace, role: EngineRole): number | undefined {
  const supervisor = supervisorPid(engine);
  if (supervisor === undefined || role === "supervisor") return supervisor;
  // A role names itself in its title; the helper is known by its program.
  const isRole = (command: string): boolean =>
    role === "sandbox-host"
      ? command.includes("/sandbox-host --data-dir")
      : command.startsWith(`agent-sandbox ${role}`);
  return processTable().find(({ pid, command }) => isRole(command) && parentOf(pid) === supervisor)?.pid;
}

/** Kills a process without a warning and resolves when another has taken its place and the API answers. */
export async function killRole(engine: RealEngine, role: EngineRole): Promise<void> {
  const pid = roleProcess(engine, role);
  if (pid === undefined) throw new Error(`the engine has no process ${role}`);
  const identity = identifyProcess(pid);
  const others = allRoles.flatMap((name) => identifyProcess(roleProcess(engine, name) ?? 0) ?? []);
  process.kill(pid, "SIGKILL");
  await until(() => identity === undefined || !isAlive(identity));
  if (role === "supervisor") {
    // The others notice that they are alone and end; their ports are free then.
    await until(() => others.every((one) => !isAlive(one)));
    engine.up();
  }
  await roleReturned(engine, role, pid);
}

/** Resolves when another process has taken the place of a role's that was killed, and the API answers. */
export async function roleReturned(engine: RealEngine, role: EngineRole, pid: number): Promise<void> {
  await until(() => (roleProcess(engine, role) ?? pid) !== pid);
  await engine.connect();
  await until(() => answers(engine));
}

async function answers(engine: RealEngine): Promise<boolean> {
  try {
    const { status } = await engine.client.transport.request({
      method: "GET",
      path: "/readyz",
      signal: AbortSignal.timeout(2_000),
    });
    return status === 200;
  } catch {
    return false;
  }
}

function supervisorPid(engine: EnginePlace): number | undefined {
  const file = path.join(`/proc/${engine.place.pid}/root/run/agent-sandbox`, engine.instance, "engine.json");
  if (!existsSync(file)) return undefined;
  const { supervisor } = JSON.parse(readFileSync(file, "utf8")) as { supervisor: { pid: number; startTicks: string } };
  return isAlive(supervisor) ? supervisor.pid : undefined;
}

function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return undefined;
  }
}
