import { readFileSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import type { ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import type { Layout } from "./layout.ts";
import { writeRootFile } from "./root-files.ts";

/** A program and what stands behind its name on the command line. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
}

/** What a running supervisor is asked to become. It carries it out alone, because the command that asked may have ended. */
export interface SwitchOrder {
  readonly version: string;
  /** The launcher of the other version. */
  readonly program: string;
  /** The link that leads to the installation, and what it led to before. */
  readonly link: { readonly path: string; readonly before?: string };
  /** The copy of the store that takes the place of the store, and the version whose store that is. */
  readonly restore?: { readonly copy: string; readonly of: string };
  /** Added by the supervisor where a copy is restored: the name that the store has meanwhile, and the version whose store it is. */
  readonly kept?: { readonly name: string; readonly of: string };
  /** Added by the supervisor: how it is started again where the other version does not come up. */
  readonly back?: Command;
  /** Added by the supervisor: the process that starts it again where the other version ends before it could turn back. */
  readonly guard?: ProcessIdentity;
}

/** Why the last switch was undone. */
export interface SwitchFailure {
  readonly version: string;
  readonly message: string;
}

/** The signal that says that an order is there. Node keeps SIGUSR1 for its debugger. */
export const switchSignal = "SIGUSR2";

/** How long the other version may take until everything answers; a start takes a second or two. */
export const switchLimitMs = 60_000;

/** When a switch has ended in any case: the other version's start, and the way back. */
export const switchEndLimitMs = 2 * switchLimitMs + 10_000;

type Run = Pick<Layout, "runDir">;

const orderFile = ({ runDir }: Run): string => path.join(runDir, "switch.json");
const failureFile = ({ runDir }: Run): string => path.join(runDir, "switch-failed.json");

/** Preconditions: the caller is root, and the engine's directories are there. */
export function writeSwitchOrder(run: Run, order: SwitchOrder): void {
  writeRootFile(orderFile(run), JSON.stringify(order));
}

/** The order that was left, if any. */
export function readSwitchOrder(run: Run): SwitchOrder | undefined {
  return readIfThere<SwitchOrder>(orderFile(run));
}

/** Preconditions: the caller is root. */
export function writeSwitchFailure(run: Run, failure: SwitchFailure): void {
  writeRootFile(failureFile(run), JSON.stringify(failure));
}

/** Why the last switch was undone, if it was. */
export function readSwitchFailure(run: Run): SwitchFailure | undefined {
  return readIfThere<SwitchFailure>(failureFile(run));
}

/** Forgets an order that was carried out. Why it was undone stays, for the one who gave it. */
export async function clearSwitchOrder(run: Run): Promise<void> {
  await rm(orderFile(run), { force: true });
}

/** The same for a process that is about to end. */
export function forgetSwitchOrder(run: Run): void {
  rmSync(orderFile(run), { force: true });
}

/** Forgets all of the last switch, before an order is given anew. */
export async function clearSwitch(run: Run): Promise<void> {
  for (const file of [orderFile(run), failureFile(run)]) await rm(file, { force: true });
}

function readIfThere<T>(file: string): T | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
