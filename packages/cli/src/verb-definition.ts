import type { Verb } from "./context.ts";

/** One flag. */
export interface FlagDefinition {
  /** How it is written: `--force`, `-f, --follow`, `--name <name>`, `--no-wait`; what stands in `<>` is a value. */
  readonly flag: string;
  readonly text: string;
  /** What the verb gets where the flag is not given. */
  readonly value?: string;
  readonly choices?: readonly string[];
  /** May be given several times; the verb gets a list. */
  readonly repeat?: boolean;
}

/** One verb: help, completion, man page and parser are made from this. */
export interface VerbDefinition {
  readonly name: string;
  readonly summary: string;
  /** Positional arguments: `<needed>`, `[may be left out]`; the last one may take all that follow: `<names...>`. */
  readonly args?: string;
  readonly flags?: readonly FlagDefinition[];
  /** Everything behind the first positional argument belongs to the command that is run. */
  readonly passThrough?: boolean;
  /** The verb reads all its arguments itself. */
  readonly isOpaque?: boolean;
  readonly examples?: readonly string[];
  readonly verbs?: readonly VerbDefinition[];
  /** Loads the module that does it; a verb about the command itself is made from all the groups. */
  readonly load?: (groups: readonly VerbGroup[]) => Promise<Verb<never>>;
}

/** Verbs that are about the same thing, under one title of the help text. */
export interface VerbGroup {
  readonly title: string;
  readonly verbs: readonly VerbDefinition[];
}
