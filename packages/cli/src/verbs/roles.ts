import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { CliError } from "../cli-error.ts";
import type { Verb } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";

/** Runs the controllers; flags are the reference controller's. */
export const controllerVerb: Verb = role("controller", "main/controller-process.ts");

/** Runs the router; flags are the reference router's. */
export const routerVerb: Verb = role("router", "main/router-process.ts");

/** Joins this machine to a cluster. */
export const nodeVerb: Verb = role("node", "main/node-process.ts");

/** A role of the server: a module of its own that takes the arguments and resolves with an exit code when it has ended. */
interface RoleModule {
  readonly runProcess: (args: readonly string[]) => Promise<number | undefined>;
}

function role(name: string, module: string): Verb {
  return async (_context, args) => {
    const server = path.dirname(fileURLToPath(import.meta.resolve("@agent-sandbox/server")));
    const file = path.join(server, module);
    if (!existsSync(file)) {
      throw new CliError(`this build has no ${name} role`, { exitCode: exitCodes.unsupported });
    }
    // The role ends by signals in its own way.
    process.removeAllListeners("SIGINT");
    process.removeAllListeners("SIGTERM");
    const { runProcess } = (await import(pathToFileURL(file).href)) as RoleModule;
    return runProcess(args);
  };
}
