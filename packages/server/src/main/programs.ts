import { accessSync, constants, readFileSync } from "node:fs";
import path from "node:path";
import type { EnginePrograms } from "./engine-config.ts";

const setupFile = path.resolve(import.meta.dirname, "../../../../node_modules/.agent-sandbox/setup.json");

/** The native programs that set-up built, and the distribution's `runc` where there is one. */
export function findPrograms(): EnginePrograms {
  const { runsc, runscVersion, sandboxd, sandboxHost } = readSetup();
  const runc = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"].find(isProgram);
  return { runsc, runscVersion, sandboxd, sandboxHost, ...(runc !== undefined && { runc }) };
}

/** The program that `verify` makes its attempts with; no part of an engine. */
export function findProbe(): string {
  return readSetup().sandboxProbe;
}

function readSetup(): EnginePrograms & { readonly sandboxProbe: string } {
  try {
    return JSON.parse(readFileSync(setupFile, "utf8")) as EnginePrograms & { readonly sandboxProbe: string };
  } catch (cause) {
    throw new Error("the engine is not set up; start it through ./agent-sandbox, which does so", { cause });
  }
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
