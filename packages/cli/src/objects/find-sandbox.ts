import type { Engine, Sandbox } from "@agent-sandbox/sdk";
import { didYouMean } from "@agent-sandbox/sdk/errors/did-you-mean";
import { isSandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { CliError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";

/** The sandbox of that name, or of the claim of that name; otherwise an error that guesses what was meant. */
export async function findSandbox(name: string, flags: EngineFlags, context: Context): Promise<Sandbox> {
  const engine = await openEngine(flags);
  const { Sandbox } = await import("@agent-sandbox/sdk/sandbox");
  const { signal } = context;
  try {
    return await Sandbox.get(name, { engine, signal });
  } catch (error) {
    if (!isSandboxError(error, "not-found")) throw error;
    const claimed = await sandboxOfClaim(engine, name);
    if (claimed !== undefined) return Sandbox.get(claimed, { engine, signal });
    throw await noSuchSandbox(engine, name);
  }
}

async function sandboxOfClaim({ client, namespace }: Engine, name: string): Promise<string | undefined> {
  const { ignore } = await import("@agent-sandbox/api/api-error");
  const { sandboxClaims } = await import("@agent-sandbox/api/resource");
  const claim = await client.get(sandboxClaims, { namespace, name }).catch(ignore("NotFound", "Invalid"));
  return claim?.status?.sandbox?.name;
}

/** `no such sandbox 'x'; did you mean 'y'?` */
async function noSuchSandbox({ client, namespace }: Engine, name: string): Promise<CliError> {
  const { sandboxes } = await import("@agent-sandbox/api/resource");
  const names = await client.list(sandboxes, { namespace }).then(
    ({ items }) => items.map(({ metadata }) => metadata.name ?? ""),
    () => [],
  );
  const message = `no such sandbox '${name}' in namespace '${namespace}'${didYouMean(name, names)}`;
  return new CliError(message, { exitCode: exitCodes.notFound, hint: "List them with: agent-sandbox ls" });
}
