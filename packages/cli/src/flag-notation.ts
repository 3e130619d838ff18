import type { FlagDefinition } from "./verb-definition.ts";

/** A flag as the notation of its definition says it is written. */
export interface Flag {
  /** `-o`; absent: it has no short form. */
  readonly short: string | undefined;
  /** `--output`, with its dashes. */
  readonly long: string;
  /** `format`; absent: it takes no value. */
  readonly valueName: string | undefined;
}

/** Reads a definition's notation: `-o, --output <format>`. */
export function readFlag({ flag }: Pick<FlagDefinition, "flag">): Flag {
  const match = /^(?:(-\w), )?(--[\w-]+)(?: <([^>]+)>)?$/.exec(flag);
  if (match === null) throw new Error(`bug: '${flag}' is no flag`);
  return { short: match[1], long: match[2] ?? "", valueName: match[3] };
}

const negation = "--no-";

/** Whether giving the flag turns something off that is on without it. */
export function isNegated({ long }: Flag): boolean {
  return long.startsWith(negation);
}

/** The name a verb knows the flag's value by: `--router-url` is `routerUrl`, `--no-wait` is `wait`. */
export function keyOf(flag: Flag): string {
  const name = isNegated(flag) ? flag.long.slice(negation.length) : flag.long.slice(2);
  return name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}
