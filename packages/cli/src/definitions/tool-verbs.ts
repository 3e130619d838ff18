import type { VerbDefinition } from "../verb-definition.ts";

/** Verbs about the command itself. */
export const toolVerbs: readonly VerbDefinition[] = [
  {
    name: "completion",
    summary: "print a completion script: bash, zsh or fish",
    args: "<shell>",
    examples: ["source <(agent-sandbox completion bash)", "agent-sandbox completion fish | source"],
    load: async (groups) => (await import("../verbs/completion.ts")).completionVerb(groups),
  },
  {
    name: "man",
    summary: "print the manual page, in troff",
    examples: ["agent-sandbox man | man -l -"],
    load: async (groups) => (await import("../verbs/man.ts")).manVerb(groups),
  },
];
