import type { VerbDefinition } from "../verb-definition.ts";
import { allNamespacesFlag, engineFlags, outputFlag, selectorFlag } from "./flags.ts";

/** Verbs about objects of any kind. */
export const objectVerbs: readonly VerbDefinition[] = [
  {
    name: "ls",
    summary: "list sandboxes",
    flags: [
      { flag: "--archived", text: "those that are in the archive, or on their way there or back" },
      outputFlag,
      allNamespacesFlag,
      selectorFlag,
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/get.ts")).lsVerb,
  },
  {
    name: "get",
    summary: "print objects: get [kind,...|all] [name...]; a name alone is a sandbox's",
    args: "[kind] [names...]",
    flags: [outputFlag, allNamespacesFlag, selectorFlag, ...engineFlags],
    examples: ["agent-sandbox get pools", "agent-sandbox get sandbox dev -o yaml", "agent-sandbox get all"],
    load: async () => (await import("../verbs/get.ts")).getVerb,
  },
  {
    name: "describe",
    summary: "explain an object: its conditions, its Pod, its events",
    args: "<kind-or-sandbox> [name]",
    flags: engineFlags,
    load: async () => (await import("../verbs/describe.ts")).describeVerb,
  },
  {
    name: "apply",
    summary: "create or change objects from files, by server-side apply",
    flags: [
      { flag: "-f, --filename <file>", text: "YAML or JSON; a directory, or - for standard input", repeat: true },
      { flag: "--dry-run", text: "only check" },
      { flag: "--force", text: "take over fields that others set" },
      outputFlag,
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/apply.ts")).applyVerb,
  },
  {
    name: "delete",
    summary: "delete objects: delete [kind] <name...>; names alone are sandboxes'",
    args: "[kind-or-names...]",
    flags: [
      { flag: "-f, --filename <file>", text: "delete what these files name", repeat: true },
      { flag: "--all", text: "all of the kind in the namespace" },
      selectorFlag,
      { flag: "--ignore-not-found", text: "what is gone already is fine" },
      { flag: "--no-wait", text: "do not wait until they are gone" },
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/delete.ts")).deleteVerb,
  },
  {
    name: "watch",
    summary: "follow changes: watch [kind] [name]",
    args: "[kind] [name]",
    flags: [{ ...outputFlag, choices: ["json", "name", "wide"] }, allNamespacesFlag, selectorFlag, ...engineFlags],
    load: async () => (await import("../verbs/watch.ts")).watchVerb,
  },
];
