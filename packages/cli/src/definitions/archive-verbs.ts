import type { VerbDefinition } from "../verb-definition.ts";
import { engineFlags } from "./flags.ts";

/** Verbs about archived sandboxes, by their objects. */
export const archiveVerbs: readonly VerbDefinition[] = [
  {
    name: "create",
    summary: "put sandboxes to sleep and then into the archive; nothing of them stays on this machine",
    args: "<sandbox...>",
    flags: engineFlags,
    examples: ["agent-sandbox archive create dev"],
    load: async () => (await import("../verbs/archiving.ts")).archiveCreateVerb,
  },
  {
    name: "rm",
    summary: "delete archived sandboxes for good",
    args: "<names...>",
    flags: engineFlags,
    load: async () => (await import("../verbs/archiving.ts")).archiveRmVerb,
  },
];
