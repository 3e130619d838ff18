import { pathToFileURL } from "node:url";
import { type EntryName, entryFile } from "@agent-sandbox/server/installation/installation";
import type { Verb } from "../context.ts";

/** Runs the controllers; flags are the reference controller's. */
export const controllerVerb: Verb = role("controller-process");

/** Runs the router; flags are the reference router's. */
export const routerVerb: Verb = role("router-process");

/** Joins this machine to a cluster. */
export const nodeVerb: Verb = role("node-process");

/** A role of the server: a module of its own that takes the arguments and resolves with an exit code when it has ended. */
interface RoleModule {
  readonly runProcess: (args: readonly string[]) => Promise<number | undefined>;
}

function role(module: EntryName): Verb {
  return async (_context, args) => {
    // The role ends by signals in its own way.
    process.removeAllListeners("SIGINT");
    process.removeAllListeners("SIGTERM");
    const { runProcess } = (await import(pathToFileURL(entryFile(module)).href)) as RoleModule;
    return runProcess(args);
  };
}
