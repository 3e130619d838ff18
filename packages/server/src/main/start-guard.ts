import { spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { identifyProcess, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { entryFile } from "../installation/installation.ts";
import type { GuardRequest } from "./switch-guard-process.ts";

/**
 * Starts the guard of a switch. A shell that ends at once is its parent: this process becomes a program that does not know of the guard, and
 * would leave it as a zombie. The guard stays in this process's group and session, so that a terminal's Ctrl-C ends both.
 */
export async function startGuard(request: GuardRequest): Promise<ProcessIdentity> {
  const script = '"$@" 3>&- & echo $! >&3';
  const own = [process.execPath, "--disable-warning=ExperimentalWarning", entryFile("switch-guard-process")];
  const shell = spawn("/bin/sh", ["-c", script, "guard", ...own, JSON.stringify(request)], {
    stdio: ["ignore", "inherit", "inherit", "pipe"],
  });
  const failed = new Promise<never>((_resolve, reject) => {
    shell.once("error", reject);
  });
  const pid = Number(await Promise.race([text(shell.stdio[3] as Readable), failed]));
  const guard = identifyProcess(pid);
  if (guard === undefined) throw new Error("the process that watches over the switch did not start");
  return guard;
}
