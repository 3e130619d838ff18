import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import path from "node:path";
import { EngineError } from "./engine-error.ts";
import type { Layout } from "./layout.ts";
import { defaultDiskFloorBytes } from "./limit-flags.ts";
import { findPrograms } from "./programs.ts";
import { socketAnswers } from "./supervisor.ts";

/** The helper listens within milliseconds of its start. */
const helperTimeoutMs = 5_000;

/** It ends within milliseconds of SIGTERM, unless it waits for a disk. */
const helperEndTimeoutMs = 10_000;

/**
 * Runs the privileged helper alone for as long as `act` takes, for an engine that does not run. Preconditions: the caller is root and holds the
 * engine's lock.
 */
export async function withLoneHelper<T>(
  layout: Layout,
  purpose: string,
  act: (socketPath: string) => Promise<T>,
): Promise<T> {
  const { sandboxHost, runsc, runc } = findPrograms();
  const socket = `${layout.hostSocket}.${purpose}`;
  const args = [
    `--data-dir=${layout.dataDir}`,
    `--run-dir=${path.dirname(layout.runDir)}`,
    `--socket=${socket}`,
    `--runsc=${runsc}`,
    `--runc=${runc ?? ""}`,
    `--disk-floor=${await defaultDiskFloorBytes(layout.dataDir)}`,
  ];
  return withProgram({ file: sandboxHost, args, socket, endTimeoutMs: helperEndTimeoutMs }, act);
}

/** A program that listens on a socket. */
interface SocketProgram {
  readonly file: string;
  readonly args: readonly string[];
  readonly socket: string;
  /** From SIGTERM until SIGKILL. */
  readonly endTimeoutMs: number;
}

/** Runs a program for as long as `act` takes; has ended when this does. Exported for tests. */
export async function withProgram<T>(
  { file, args, socket, endTimeoutMs }: SocketProgram,
  act: (socketPath: string) => Promise<T>,
): Promise<T> {
  const program = spawn(file, args, { stdio: "ignore" });
  const gaveUp = new AbortController();
  const ended = new Promise<string>((resolve) => {
    program.once("error", ({ message }) => resolve(message));
    program.once("exit", (code, signal) => resolve(`it ended with ${signal ?? code}`));
  });
  void ended.then((why) => gaveUp.abort(new Error(why)));
  try {
    await socketAnswers(socket, AbortSignal.any([gaveUp.signal, AbortSignal.timeout(helperTimeoutMs)])).catch(
      (cause: unknown) => {
        const { message } = cause as Error;
        throw new EngineError(`the engine's helper ${file} does not answer: ${message}`, { code: "no-engine", cause });
      },
    );
    return await act(socket);
  } finally {
    program.kill("SIGTERM");
    const killer = setTimeout(() => program.kill("SIGKILL"), endTimeoutMs);
    await ended;
    clearTimeout(killer);
    await rm(socket, { force: true });
  }
}
