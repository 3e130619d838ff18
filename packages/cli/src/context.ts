import type { Engine, EngineOptions } from "@agent-sandbox/sdk";
import { usageError } from "./cli-error.ts";

/** Flags that say which engine is meant; every verb that talks to one has them. */
export interface EngineFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly dataDir?: string;
  readonly routerUrl?: string;
  readonly namespace?: string;
}

/** What a verb works with. */
export interface Context {
  readonly stdin: NodeJS.ReadStream;
  /** These two make what is written to a terminal harmless, see `terminal/harmless.ts`. */
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborted when the user wants to leave. */
  readonly signal: AbortSignal;
  readonly nowMs: () => number;
}

/** A verb: gets its positional arguments and flags, prints, and returns its exit code; nothing means 0. */
export type Verb<F = Record<string, unknown>> = (
  context: Context,
  args: readonly string[],
  flags: F,
) => Promise<number | undefined | void>;

/** The SDK's engine options for some flags. */
function engineOptions(flags: EngineFlags): EngineOptions {
  const { kubeconfig, context, dataDir, routerUrl, namespace } = flags;
  return {
    ...(kubeconfig !== undefined && { kubeconfig }),
    ...(context !== undefined && { context }),
    ...(dataDir !== undefined && { dataDir }),
    ...(routerUrl !== undefined && { routerUrl }),
    ...(namespace !== undefined && { namespace }),
  };
}

/** Finds the engine that is meant; does not start one. */
export async function openEngine(flags: EngineFlags): Promise<Engine> {
  const { connectEngine } = await import("@agent-sandbox/sdk/engine/connect-engine");
  const engine = await connectEngine(engineOptions(flags));
  if (engine.kind === "local" && engine.credentials.ca !== undefined) trustNobodyElse();
  return engine;
}

/**
 * Empties the list of authorities that connections which name none believe. Preconditions: every connection from here on names
 * its own, as those to the engine of this machine do. Node would otherwise read all that it knows before the first of them,
 * which takes longer than the request.
 */
function trustNobodyElse(): void {
  process.getBuiltinModule("node:tls").setDefaultCACertificates([]);
}

/** Whether colours may be used on a stream. */
export function hasColour(stream: NodeJS.WriteStream, env: Context["env"]): boolean {
  if (env["NO_COLOR"] !== undefined && env["NO_COLOR"] !== "") return false;
  return stream.isTTY === true && env["TERM"] !== "dumb";
}

/** The argument at a place; a usage error that names it where it is missing. */
export function required(args: readonly string[], index: number, name: string): string {
  const value = args[index];
  if (value === undefined || value === "") throw usageError(`${name} is missing`);
  return value;
}
