import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { pods } from "@agent-sandbox/api";
import type { Engine } from "@agent-sandbox/sdk";
import { readSetup } from "../../scripts/checkout.ts";
import { type EngineRole, roleProcess } from "../node/engine-processes.ts";
import { processTable } from "../node/footprint.ts";
import { until } from "../node/real-engine.ts";

const execute = promisify(execFile);

/** What is killed. The first three belong to one sandbox, the others to the engine. */
export const targets = ["container", "sandboxd", "sentry", "router", "node", "control"] as const;

export type Target = (typeof targets)[number];

/** Whether a target belongs to one sandbox. */
export function isOfSandbox(target: Target): boolean {
  return target === "container" || target === "sandboxd" || target === "sentry";
}

/** The engine whose parts are killed. */
export interface Victim {
  readonly dataDir: string;
  readonly engine: Engine;
}

/** Kills a target without a warning; for one of a sandbox, those of all of them at once. */
export async function killTarget(victim: Victim, target: Target, sandboxes: readonly string[]): Promise<void> {
  if (!isOfSandbox(target)) return killRole(victim, target as EngineRole);
  const kill = { container: killEntrypoint, sandboxd: killDaemon, sentry: killSentry }[target as "sentry"];
  await Promise.all(sandboxes.map(async (name) => kill(victim, await containerOf(victim, name))));
}

async function killRole({ dataDir }: Victim, role: EngineRole): Promise<void> {
  const place = placeOf(dataDir);
  const pid = roleProcess(place, role);
  if (pid === undefined) throw new Error(`the engine has no process ${role}`);
  process.kill(pid, "SIGKILL");
}

function placeOf(dataDir: string): { place: { pid: number }; instance: string } {
  const instance = createHash("sha256").update(dataDir).digest("hex").slice(0, 6);
  return { place: { pid: process.pid }, instance };
}

/** The runtime's id of a sandbox's only container. */
async function containerOf({ engine }: Victim, name: string): Promise<string> {
  const pod = await engine.client.get(pods, { namespace: "default", name });
  const id = pod.status?.containerStatuses?.[0]?.containerID?.replace("agent-sandbox://", "");
  if (id === undefined) throw new Error(`sandbox ${name} has no container`);
  return id;
}

/** Runs the engine's own runtime on a container. */
async function runsc({ dataDir }: Victim, ...args: readonly string[]): Promise<void> {
  const root = `/run/agent-sandbox/${placeOf(dataDir).instance}/runsc`;
  await execute(readSetup().runsc, [`--root=${root}`, ...args], { timeout: 20_000 });
}

/** The container's own program ends, and the container with it. */
function killEntrypoint(victim: Victim, container: string): Promise<void> {
  const own = "/.agent-sandbox/sandboxd init --listen=off ";
  const script = `for d in /proc/[0-9]*; do [ "$(tr '\\0' ' ' < $d/cmdline)" = "${own}" ] && kill -9 \${d#/proc/}; done`;
  // The runtime loses the process that it waits for together with its container.
  return runsc(victim, "exec", container, "/bin/sh", "-c", script).catch(() => undefined);
}

/** The daemon is the container's first process. */
function killDaemon(victim: Victim, container: string): Promise<void> {
  return runsc(victim, "kill", container, "KILL");
}

async function killSentry({ dataDir }: Victim, container: string): Promise<void> {
  const isSentry = ({ command }: { command: string }): boolean =>
    command.startsWith("runsc-sandbox") && command.includes(dataDir) && command.includes(container);
  const sentry = processTable().find(isSentry);
  if (sentry === undefined) throw new Error(`no sentry of container ${container}`);
  process.kill(sentry.pid, "SIGKILL");
}

/** Resolves when the roles of the engine run, its API answers, and sandboxes that were killed run again. */
export async function recovered({ dataDir, engine }: Victim, killed: readonly string[]): Promise<void> {
  const roles = ["router", "node", "control"] as const;
  await until(async () => {
    if (roles.some((role) => roleProcess(placeOf(dataDir), role) === undefined)) return false;
    const signal = AbortSignal.timeout(2_000);
    const found = await engine.client.list(pods, { namespace: "default", signal }).catch(() => undefined);
    const isBack = (name: string): boolean => {
      const [status] = found?.items.find(({ metadata }) => metadata.name === name)?.status?.containerStatuses ?? [];
      return status?.ready === true && status.restartCount > 0;
    };
    return found !== undefined && killed.every(isBack);
  });
}
