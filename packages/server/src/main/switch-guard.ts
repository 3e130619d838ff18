import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import type { Logger } from "../telemetry/logger.ts";
import { EngineLock } from "./engine-lock.ts";
import { noteFailure, undoSwitch } from "./go-back.ts";
import type { Layout } from "./layout.ts";
import { configVariable } from "./role.ts";
import {
  type Command,
  clearSwitchOrder,
  readSwitchFailure,
  readSwitchOrder,
  type SwitchOrder,
  switchLimitMs,
} from "./switch-order.ts";

/** What a guard needs to know. */
export interface Guarded {
  readonly layout: Layout;
  readonly logger: Logger;
  /** The process that becomes another version. */
  readonly supervisor: ProcessIdentity;
  /** Default: `guardLimitMs`. */
  readonly limitMs?: number;
}

/** A version that has begun its `up` turns back by itself at the limit of a switch; one that has not is ended a little later. */
const guardLimitMs = switchLimitMs + 5_000;

// The order is one small file in memory, and a guard lives for seconds.
const lookEveryMs = 20;

/**
 * Watches a supervisor that becomes another version, and gives the place back to the version before where the other one ends before it serves,
 * or never begins: a program that refuses a flag or is killed has no chance to do so itself. Resolves with the command that starts the version
 * before, which the caller becomes, or with undefined where nothing is to be started. Preconditions: the caller is root.
 */
export async function guardSwitch(guarded: Guarded): Promise<Command | undefined> {
  const { layout, logger, supervisor } = guarded;
  const message = await failureOf(guarded);
  if (message === undefined) return undefined;
  using lock = await lockFor(layout);
  // The process that had the lock since may have ended the engine for good, or have started it.
  const order = ownOrder(layout);
  if (lock === undefined || order?.back === undefined) return undefined;
  lock.announce(layout);
  logger.error({ version: order.version, why: message }, "the version does not start; going back to the one before");
  noteFailure(layout, order, message);
  await endRoles(layout);
  await undoSwitch(layout, order);
  if (!isStartedByOthers(supervisor)) return order.back;
  await clearSwitchOrder(layout);
  return undefined;
}

/** Resolves with why the version before has to come back, or with undefined when the switch is over. */
async function failureOf({ layout, supervisor, limitMs = guardLimitMs }: Guarded): Promise<string | undefined> {
  const endMs = performance.now() + limitMs;
  for (let order = ownOrder(layout); order !== undefined; order = ownOrder(layout)) {
    if (!isAlive(supervisor)) return "it ended before it answered";
    // One that turns back by itself has said why.
    if (performance.now() >= endMs && readSwitchFailure(layout) === undefined) {
      process.kill(supervisor.pid, "SIGKILL");
      return `it did not answer within ${limitMs / 1000} s`;
    }
    await sleep(lookEveryMs);
  }
  return undefined;
}

/** The order, unless it is one for which another process, or none yet, is the guard. */
function ownOrder(layout: Layout): SwitchOrder | undefined {
  const order = readSwitchOrder(layout);
  if (order?.back === undefined) return undefined;
  return order.guard === undefined || order.guard.pid === process.pid ? order : undefined;
}

/** The lock of the data directory, once it is free; undefined where the switch was over before that. */
async function lockFor(layout: Layout): Promise<EngineLock | undefined> {
  while (ownOrder(layout) !== undefined) {
    const lock = EngineLock.takeIn(layout.dataDir);
    if (lock !== undefined) return lock;
    await sleep(lookEveryMs);
  }
  return undefined;
}

/** Ends what the other version started: without a supervisor a role ends by itself, but one that closes its files would still write to the store. */
async function endRoles(layout: Layout): Promise<void> {
  const endMs = performance.now() + rolesLimitMs;
  for (let pids = rolesOf(layout); pids.length > 0 && performance.now() < endMs; pids = rolesOf(layout)) {
    for (const pid of pids) endRole(pid);
    await sleep(lookEveryMs);
  }
}

/** A process that the kernel cannot end, for instance one that waits for a dead disk, must not keep the version before from coming back. */
const rolesLimitMs = 5_000;

function rolesOf({ configFile }: Layout): number[] {
  const mark = `${configVariable}=${configFile}`;
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.filter((pid) => environmentOf(pid).includes(mark));
}

function environmentOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  } catch {
    // It has ended since it was listed.
    return [];
  }
}

function endRole(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended since it was listed.
  }
}

/** Whether systemd started that process as a service's own; its unit starts the link again, and two engines would meet. */
function isStartedByOthers({ pid }: ProcessIdentity): boolean {
  return process.env["SYSTEMD_EXEC_PID"] === String(pid);
}
