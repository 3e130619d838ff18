import { accessSync, constants } from "node:fs";
import { nativePrograms } from "../installation/installation.ts";
import type { EnginePrograms } from "./engine-config.ts";

/** The native programs of this installation, and the distribution's `runc` where there is one. */
export function findPrograms(): EnginePrograms {
  const { runsc, runscVersion, sandboxd, sandboxHost } = nativePrograms();
  const runc = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"].find(isProgram);
  return { runsc, runscVersion, sandboxd, sandboxHost, ...(runc !== undefined && { runc }) };
}

/** The program that `verify` makes its attempts with; no part of an engine. */
export function findProbe(): string {
  return nativePrograms().sandboxProbe;
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
