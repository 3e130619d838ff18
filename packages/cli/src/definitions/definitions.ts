import type { Verb } from "../context.ts";
import { engineVerbs } from "./engine-verbs.ts";
import { objectVerbs } from "./object-verbs.ts";
import { sandboxVerbs } from "./sandbox-verbs.ts";
import { supplyVerbs } from "./supply-verbs.ts";
import { toolVerbs } from "./tool-verbs.ts";

/** One flag, in commander's notation. */
export interface FlagDefinition {
  readonly flag: string;
  readonly text: string;
  readonly value?: string | number | boolean;
  readonly choices?: readonly string[];
  /** May be given several times; the verb gets a list. */
  readonly repeat?: boolean;
}

/** One verb: help, completion, man page and parser are made from this. */
export interface VerbDefinition {
  readonly name: string;
  readonly summary: string;
  /** Positional arguments in commander's notation. */
  readonly args?: string;
  readonly flags?: readonly FlagDefinition[];
  /** Everything behind the first positional argument belongs to the command that is run. */
  readonly passThrough?: boolean;
  /** The verb reads all its arguments itself. */
  readonly isOpaque?: boolean;
  readonly examples?: readonly string[];
  readonly verbs?: readonly VerbDefinition[];
  /** Loads the module that does it. */
  readonly load?: () => Promise<Verb>;
}

/** Verbs by what they are about, in the order of the help text. */
export const groups: readonly { readonly title: string; readonly verbs: readonly VerbDefinition[] }[] = [
  { title: "Run", verbs: sandboxVerbs },
  { title: "Objects", verbs: objectVerbs },
  { title: "Images, pools, templates", verbs: supplyVerbs },
  { title: "The one-machine engine", verbs: engineVerbs },
  { title: "Other", verbs: toolVerbs },
];
