/** The type of one flag's value. */
export type FlagKind = "bool" | "int" | "float" | "string" | "duration";

/** One flag: its kind, default and a line of help. Durations are in milliseconds. */
export interface FlagDefinition {
  readonly kind: FlagKind;
  readonly fallback: boolean | number | string;
  readonly help: string;
}

/** A table of flags by name. */
export type FlagTable = Readonly<Record<string, FlagDefinition>>;

type Widened<V> = V extends boolean ? boolean : V extends number ? number : string;

/** The values of a table of flags. */
export type FlagValues<T extends FlagTable> = { readonly [K in keyof T]: Widened<T[K]["fallback"]> };

/** A command line that cannot be understood. */
export class FlagError extends Error {
  override readonly name = "FlagError";
}

/** Parses Go flag syntax: `-x` or `--x`, `--x=v` or `--x v`; a boolean takes its value only after `=`. */
export function parseGoFlags<T extends FlagTable>(
  table: T,
  args: readonly string[],
  parseDuration: (text: string) => number | undefined,
): { readonly values: FlagValues<T>; readonly rest: readonly string[] } {
  const values: Record<string, boolean | number | string> = {};
  for (const [name, definition] of Object.entries(table)) values[name] = definition.fallback;
  let index = 0;
  for (; index < args.length; index++) {
    const argument = args[index] ?? "";
    if (argument === "--") {
      index += 1;
      break;
    }
    const match = /^--?([^-=][^=]*)(?:=(.*))?$/s.exec(argument);
    if (match === null) break;
    const [, name = "", inline] = match;
    const definition = table[name];
    if (definition === undefined) throw new FlagError(`flag provided but not defined: -${name}`);
    if (definition.kind === "bool") {
      values[name] = parseBool(name, inline ?? "true");
      continue;
    }
    const text = inline ?? args[++index];
    if (text === undefined) throw new FlagError(`flag needs an argument: -${name}`);
    values[name] = parseValue(name, definition.kind, text, parseDuration);
  }
  return { values: values as FlagValues<T>, rest: args.slice(index) };
}

/** Whether a command line asks for help; what else is on it does not matter then. */
export function wantsHelp(args: readonly string[]): boolean {
  const own = args.includes("--") ? args.slice(0, args.indexOf("--")) : args;
  return own.some((word) => ["-h", "-help", "--help"].includes(word));
}

/** What `--help` prints: every flag with its kind, its line of help and its default. */
export function goFlagsUsage(command: string, summary: string, table: FlagTable): string {
  const lines = Object.entries(table).map(([name, definition]) => {
    const { kind, fallback, help } = definition;
    const value = kind === "bool" ? "" : ` ${kind}`;
    const shown = fallback === "" || fallback === false ? "" : ` (default ${shownDefault(definition)})`;
    return `  --${name}${value}\n        ${help}${shown}`;
  });
  return `Usage: ${command} [flags]\n\n${summary}\n\n${lines.join("\n")}\n`;
}

function shownDefault({ kind, fallback }: FlagDefinition): string {
  if (kind !== "duration") return String(fallback);
  return Number(fallback) % 1000 === 0 ? `${Number(fallback) / 1000}s` : `${fallback}ms`;
}

function parseValue(
  name: string,
  kind: Exclude<FlagKind, "bool">,
  text: string,
  parseDuration: (text: string) => number | undefined,
): number | string {
  switch (kind) {
    case "string":
      return text;
    case "int": {
      if (!/^[+-]?\d+$/.test(text)) throw invalid(name, text);
      return Number.parseInt(text, 10);
    }
    case "float":
      return parseFloatText(name, text);
    case "duration": {
      const ms = parseDuration(text);
      if (ms === undefined) throw invalid(name, text);
      return ms;
    }
  }
}

/** Go accepts infinities and NaN here; validation refuses them later, with a better message. */
function parseFloatText(name: string, text: string): number {
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text);
  if (special !== null) {
    if (special[2]?.toLowerCase() === "nan") return Number.NaN;
    return special[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  }
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw invalid(name, text);
  return value;
}

function parseBool(name: string, text: string): boolean {
  if (["1", "t", "T", "true", "TRUE", "True"].includes(text)) return true;
  if (["0", "f", "F", "false", "FALSE", "False"].includes(text)) return false;
  throw new FlagError(`invalid boolean value "${text}" for -${name}: parse error`);
}

function invalid(name: string, text: string): FlagError {
  return new FlagError(`invalid value "${text}" for flag -${name}: parse error`);
}
