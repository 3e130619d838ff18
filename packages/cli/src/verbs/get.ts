import { isReasonOf } from "@agent-sandbox/api/api-error";
import type { KubeObject } from "@agent-sandbox/api/meta";
import { sandboxArchives } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import { asSandboxError } from "@agent-sandbox/sdk/errors/api-failure";
import { didYouMean } from "@agent-sandbox/sdk/errors/did-you-mean";
import { CliError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { type Kind, kindOf, kindWords, sandboxKind, tryKind } from "../objects/kinds.ts";
import { type ObjectGroup, type PrintOptions, printGroups, printObjects } from "../output/print-objects.ts";

/** Flags of verbs that print objects. */
export interface GetFlags extends EngineFlags {
  readonly output?: NonNullable<PrintOptions["output"]>;
  readonly allNamespaces?: boolean;
  readonly selector?: string;
}

/** Lists sandboxes. */
export const lsVerb: Verb = (context, _args, flags) => {
  const { archived = false, ...rest } = flags as GetFlags & { readonly archived?: boolean };
  return getObjects(context, archived ? kindOf("archives") : sandboxKind, [], rest);
};

/** Prints objects of any kind. */
export const getVerb: Verb = (context, args, flags) => {
  const targets = readTargets(args);
  const [only, ...others] = targets;
  if (only !== undefined && others.length === 0) return getObjects(context, only.kind, only.names, flags as GetFlags);
  return getOfSeveralKinds(context, targets, flags as GetFlags);
};

/** Objects of one kind that are asked for: those of the names, or all. */
export interface Target {
  readonly kind: Kind;
  readonly names: readonly string[];
}

/** What `all` stands for. */
const allKinds = "sandboxes,claims,pools,templates,pods,services,pvc";

/** Reads what kubectl's grammar allows besides one kind: `a,b`, `a,b name...`, `a/name b/name` and `all`. */
export function readTargets(args: readonly string[]): readonly Target[] {
  const [first = "", ...names] = args;
  const isPairs = args.length > 1 && args.every((word) => word.indexOf("/") > 0);
  if (isPairs) return args.map((word) => readTarget([word]));
  const words = (first.toLowerCase() === "all" ? allKinds : first).split(",");
  if (words.length === 1 || first.includes("/")) return [readTarget(args)];
  return words.filter((word) => word !== "").map((word) => ({ kind: kindOf(word), names }));
}

/** Kind and names of `[kind] [name...]` or `kind/name`; a first word that is no kind is a sandbox's name. */
export function readTarget(args: readonly string[]): Target {
  const [first, ...rest] = args;
  if (first === undefined) return { kind: sandboxKind, names: [] };
  const slash = first.indexOf("/");
  if (slash > 0) return { kind: kindOf(first.slice(0, slash)), names: [first.slice(slash + 1), ...rest] };
  const kind = tryKind(first);
  if (kind !== undefined) return { kind, names: rest };
  // Two words, of which the first is no kind, are more likely a mistyped kind than two sandboxes.
  return rest.length === 1 && !first.includes("-")
    ? { kind: kindOf(first), names: rest }
    : { kind: sandboxKind, names: args };
}

/** Gets and prints objects of one kind. */
export async function getObjects(
  context: Context,
  kind: Kind,
  names: readonly string[],
  flags: GetFlags,
): Promise<void> {
  const engine = await openEngine(flags);
  const objects =
    names.length === 0
      ? await listObjects(context, engine, kind, flags)
      : await namedObjects(context, engine, kind, names);
  await printObjects(context, kind, objects, {
    ...(flags.output !== undefined && { output: flags.output }),
    isAllNamespaces: flags.allNamespaces === true,
    isSingle: names.length === 1,
  });
}

async function getOfSeveralKinds(context: Context, targets: readonly Target[], flags: GetFlags): Promise<void> {
  const engine = await openEngine(flags);
  const groups: ObjectGroup[] = [];
  for (const { kind, names } of targets) {
    const objects =
      names.length === 0
        ? await listObjects(context, engine, kind, flags)
        : await namedObjects(context, engine, kind, names);
    groups.push({ kind, objects });
  }
  await printGroups(context, groups, {
    ...(flags.output !== undefined && { output: flags.output }),
    isAllNamespaces: flags.allNamespaces === true,
  });
}

async function listObjects(
  { signal }: Context,
  engine: Engine,
  { resource }: Kind,
  flags: GetFlags,
): Promise<KubeObject[]> {
  const { client, namespace } = engine;
  const { selector, allNamespaces = false } = flags;
  const options = {
    ...(resource.namespaced && !allNamespaces && { namespace }),
    ...(selector !== undefined && { labelSelector: selector }),
    signal,
  };
  const list = await client.list(resource, options).catch((error: unknown) => {
    throw asSandboxError(`list ${resource.resource}`, error);
  });
  return list.items;
}

/** Objects by name; an error that guesses what was meant where one does not exist. */
export async function namedObjects(
  { signal }: Context,
  engine: Engine,
  kind: Kind,
  names: readonly string[],
): Promise<KubeObject[]> {
  const { client, namespace } = engine;
  const { resource } = kind;
  const found: KubeObject[] = [];
  for (const name of names) {
    try {
      found.push(await client.get(resource, { name, ...(resource.namespaced && { namespace }) }, { signal }));
    } catch (error) {
      if (isReasonOf(error, "NotFound")) throw await noSuchObject(engine, kind, name);
      throw asSandboxError(`get ${resource.resource}/${name}`, error);
    }
  }
  return found;
}

/** `no such sandbox 'x'; did you mean 'y'?`, for any kind. */
export async function noSuchObject({ client, namespace }: Engine, { resource }: Kind, name: string): Promise<CliError> {
  const options = resource.namespaced ? { namespace } : {};
  const names = await client.list(resource, options).then(
    ({ items }) => items.map(({ metadata }) => metadata.name ?? ""),
    () => [],
  );
  const where = resource.namespaced ? ` in namespace '${namespace}'` : "";
  // A word that was taken for a sandbox may have been meant as a kind.
  const words = resource.kind === "Sandbox" ? [...names, ...kindWords()] : names;
  const message = `no such ${resource.kind.toLowerCase()} '${name}'${where}${didYouMean(name, words)}`;
  const isArchived = resource.kind === "Sandbox" && (await isInArchive(client, { namespace, name }));
  const hint = `It is archived; see: agent-sandbox describe archive ${name}, or bring it back: agent-sandbox unarchive ${name}`;
  return new CliError(message, { exitCode: exitCodes.notFound, ...(isArchived && { hint }) });
}

/** Whether a sandbox that is not there has left an archive. */
async function isInArchive(client: Engine["client"], key: { namespace: string; name: string }): Promise<boolean> {
  return client.get(sandboxArchives, key).then(
    () => true,
    () => false,
  );
}
