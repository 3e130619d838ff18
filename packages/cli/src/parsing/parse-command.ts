import { didYouMean } from "@agent-sandbox/sdk/errors/did-you-mean";
import { usageError } from "../cli-error.ts";
import type { Verb } from "../context.ts";
import { groups } from "../definitions/definitions.ts";
import type { VerbDefinition } from "../verb-definition.ts";
import { readArguments } from "./argument-notation.ts";
import { parseWords } from "./parse-words.ts";
import { callOf, usageOf } from "./usage.ts";

/** A verb behind the verbs it belongs to; empty: the command itself. */
export type VerbPath = readonly VerbDefinition[];

/** What a command line asks for. */
export type Command =
  /** `isAsked` is false where a verb is missing, and the help says which there are. */
  | { readonly do: "help"; readonly path: VerbPath; readonly isAsked: boolean }
  | {
      readonly do: "run";
      readonly load: () => Promise<Verb<never>>;
      readonly args: readonly string[];
      readonly flags: Readonly<Record<string, unknown>>;
    };

type RunnableVerb = VerbDefinition & Required<Pick<VerbDefinition, "load">>;

/** Reads a command line, without the program's name; a usage error says what is wrong with it. */
export function parseCommand(words: readonly string[]): Command {
  return parseBehind([], words);
}

function parseBehind(path: VerbPath, words: readonly string[]): Command {
  const verb = path.at(-1);
  if (verb?.load !== undefined) return parseRun(path, { ...verb, load: verb.load }, words);
  const [word, ...rest] = words[0] === "--" ? words.slice(1) : words;
  if (word === undefined) return { do: "help", path, isAsked: verb === undefined };
  if (word === "-h" || word === "--help") return { do: "help", path, isAsked: true };
  if (word === "help") return parseHelp(path, rest);
  if (/^-./.test(word)) throw usageError(`unknown flag '${word}'`, `Flags go behind the verb: ${usageOf(path)}`);
  return parseBehind([...path, findVerb(path, word)], rest);
}

/** `help`, `help ls`, `help image ls`, `image help ls`. */
function parseHelp(path: VerbPath, words: readonly string[]): Command {
  const [word, ...rest] = words;
  if (word === undefined || word.startsWith("-")) return { do: "help", path, isAsked: true };
  return parseHelp([...path, findVerb(path, word)], rest);
}

function findVerb(path: VerbPath, word: string): VerbDefinition {
  const parent = path.at(-1);
  const verbs = parent === undefined ? groups.flatMap((group) => group.verbs) : (parent.verbs ?? []);
  const found = verbs.find(({ name }) => name === word);
  if (found !== undefined) return found;
  const guess = didYouMean(
    word,
    verbs.map(({ name }) => name),
  );
  throw usageError(`unknown verb '${[...path.map(({ name }) => name), word].join(" ")}'${guess}`, helpHint(path));
}

function parseRun(path: VerbPath, verb: RunnableVerb, words: readonly string[]): Command {
  const { args, flags, wantsHelp, problem } = parseWords(verb, words);
  if (wantsHelp) return { do: "help", path, isAsked: true };
  if (problem !== undefined) throw usageError(problem, helpHint(path));
  checkCount(path, args);
  return { do: "run", load: () => verb.load(groups), args, flags };
}

function checkCount(path: VerbPath, args: readonly string[]): void {
  const known = readArguments(path.at(-1)?.args);
  const missing = known[args.length];
  const hint = `Usage: ${usageOf(path)}`;
  if (missing?.isRequired === true) throw usageError(`<${missing.name}> is missing`, hint);
  const excess = args[known.length];
  if (excess !== undefined && known.at(-1)?.isVariadic !== true)
    throw usageError(`'${excess}' is one argument too many`, hint);
}

function helpHint(path: VerbPath): string {
  return `See: ${callOf(path)} --help`;
}
