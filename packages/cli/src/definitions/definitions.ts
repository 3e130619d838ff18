import type { VerbGroup } from "../verb-definition.ts";
import { engineVerbs } from "./engine-verbs.ts";
import { objectVerbs } from "./object-verbs.ts";
import { sandboxVerbs } from "./sandbox-verbs.ts";
import { supplyVerbs } from "./supply-verbs.ts";
import { toolVerbs } from "./tool-verbs.ts";

/** Verbs by what they are about, in the order of the help text. */
export const groups: readonly VerbGroup[] = [
  { title: "Run", verbs: sandboxVerbs },
  { title: "Objects", verbs: objectVerbs },
  { title: "Images, pools, templates", verbs: supplyVerbs },
  { title: "The one-machine engine", verbs: engineVerbs },
  { title: "Other", verbs: toolVerbs },
];
