import { engineVerbs } from "./engine-verbs.ts";
import { objectVerbs } from "./object-verbs.ts";
import { sandboxVerbs } from "./sandbox-verbs.ts";
import { supplyVerbs } from "./supply-verbs.ts";
import { toolVerbs } from "./tool-verbs.ts";
import type { VerbDefinition } from "./verb-definition.ts";

/** Verbs by what they are about, in the order of the help text. */
export const groups: readonly { readonly title: string; readonly verbs: readonly VerbDefinition[] }[] = [
  { title: "Run", verbs: sandboxVerbs },
  { title: "Objects", verbs: objectVerbs },
  { title: "Images, pools, templates", verbs: supplyVerbs },
  { title: "The one-machine engine", verbs: engineVerbs },
  { title: "Other", verbs: toolVerbs },
];
