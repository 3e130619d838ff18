import { usageError } from "../cli-error.ts";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { parseDurationMs } from "../duration.ts";
import { findSandbox } from "../objects/find-sandbox.ts";

/** Prints a signed link to a sandbox's port. */
export const openVerb: Verb<EngineFlags & { ttl: string }> = async (context, args, flags) => {
  const { ttl, ...engine } = flags;
  const port = parsePort(required(args, 1, "port"));
  const sandbox = await findSandbox(required(args, 0, "sandbox"), engine, context);
  const url = await sandbox.url(port, { ttlMs: parseDurationMs("--ttl", ttl), signal: context.signal });
  context.stdout.write(`${url.href}\n`);
};

/** Reads a port number. */
export function parsePort(text: string): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port < 1 || port > 65_535) throw usageError(`'${text}' is not a port`);
  return port;
}
