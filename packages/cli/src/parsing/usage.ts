import type { VerbDefinition } from "../verb-definition.ts";

const program = "agent-sandbox";

/** How a verb is called: `agent-sandbox image ls`. `path` is the verb behind the verbs it belongs to. */
export function callOf(path: readonly VerbDefinition[]): string {
  return [program, ...path.map(({ name }) => name)].join(" ");
}

/** How a verb is called, with what goes behind it: `agent-sandbox exec [flags] <sandbox> [command...]`. */
export function usageOf(path: readonly VerbDefinition[]): string {
  const verb = path.at(-1);
  return `${callOf(path)}${verb === undefined ? " <verb> [flags] [arguments]" : behind(verb)}`;
}

/** A verb and what goes behind it: `exec [flags] <sandbox> [command...]`. */
export function shortUsageOf(verb: VerbDefinition): string {
  return `${verb.name}${behind(verb)}`;
}

function behind({ verbs, flags = [], args = "" }: VerbDefinition): string {
  if (verbs !== undefined) return " <verb> [flags] [arguments]";
  return `${flags.length > 0 ? " [flags]" : ""}${args === "" ? "" : ` ${args}`}`;
}
