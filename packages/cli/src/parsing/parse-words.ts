import { didYouMean } from "@agent-sandbox/sdk/errors/did-you-mean";
import { type Flag, isNegated, keyOf, readFlag } from "../flag-notation.ts";
import type { FlagDefinition, VerbDefinition } from "../verb-definition.ts";

/** The words behind a verb, flags told from positional arguments. */
export interface ParsedWords {
  readonly args: readonly string[];
  /** By the names that verbs know them by; those that were not given have their defaults, or are absent. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Help was asked for; what is wrong with the rest does not matter then. */
  readonly wantsHelp: boolean;
  /** The first thing that is wrong. */
  readonly problem: string | undefined;
}

/** Tells the flags of one verb from its positional arguments. How many of those there may be is not looked at. */
export function parseWords(definition: VerbDefinition, words: readonly string[]): ParsedWords {
  return new WordParser(definition, words).parse();
}

interface KnownFlag extends Flag {
  readonly definition: FlagDefinition;
}

class WordParser {
  readonly #definition: VerbDefinition;
  readonly #words: readonly string[];
  readonly #known = new Map<string, KnownFlag>();
  readonly #flags: Record<string, unknown> = {};
  readonly #args: string[] = [];
  #next = 0;
  #wantsHelp = false;
  #problem: string | undefined;

  constructor(definition: VerbDefinition, words: readonly string[]) {
    this.#definition = definition;
    this.#words = words;
    for (const one of definition.flags ?? []) this.#learn({ ...readFlag(one), definition: one });
  }

  parse(): ParsedWords {
    while (this.#next < this.#words.length) {
      const word = this.#take();
      if (word === "--") this.#takeRest();
      else if (this.#isFlag(word)) this.#readFlag(word);
      else {
        this.#args.push(word);
        if (this.#definition.passThrough === true) this.#takeRest();
      }
    }
    return { args: this.#args, flags: this.#flags, wantsHelp: this.#wantsHelp, problem: this.#problem };
  }

  #learn(flag: KnownFlag): void {
    this.#known.set(flag.long, flag);
    if (flag.short !== undefined) this.#known.set(flag.short, flag);
    if (isNegated(flag)) this.#flags[keyOf(flag)] = true;
    else if (flag.definition.value !== undefined) this.#flags[keyOf(flag)] = flag.definition.value;
  }

  #take(): string {
    const word = this.#words[this.#next] ?? "";
    this.#next += 1;
    return word;
  }

  #takeRest(): void {
    for (const word of this.#words.slice(this.#next)) this.#args.push(word);
    this.#next = this.#words.length;
  }

  /** A dash alone means standard input, and a negative number is a value. */
  #isFlag(word: string): boolean {
    return this.#definition.isOpaque !== true && /^-./s.test(word) && !/^-\d*\.?\d+$/.test(word);
  }

  #readFlag(word: string): void {
    if (word.startsWith("--")) this.#readLong(word);
    else this.#readShort(Array.from(word.slice(1)));
  }

  /** `--output json`, `--output=json`, `--force`. */
  #readLong(word: string): void {
    const equals = word.indexOf("=");
    if (word === "--help") this.#wantsHelp = true;
    else if (equals < 0) this.#readNamed(word);
    else this.#readNamed(word.slice(0, equals), word.slice(equals + 1));
  }

  /** `-o json`, `-ojson`, and several without values in one word: `-it`. */
  #readShort(letters: readonly string[]): void {
    for (const [index, letter] of letters.entries()) {
      const name = `-${letter}`;
      const rest = letters.length - index - 1;
      if (name === "-h") this.#wantsHelp = true;
      else if (!this.#known.has(name)) return this.#complain(`unknown flag '${name}'`);
      else if (rest === 0 || this.#known.get(name)?.valueName === undefined) this.#readNamed(name);
      else return this.#readNamed(name, letters.slice(-rest).join(""));
    }
  }

  #readNamed(name: string, attached?: string): void {
    const flag = this.#known.get(name);
    if (flag === undefined) {
      const guess = didYouMean(name, [...this.#known.keys(), "--help"]);
      return this.#complain(`unknown flag '${name}'${guess}`);
    }
    if (flag.valueName !== undefined) return this.#readValue(flag, attached);
    if (attached !== undefined) return this.#complain(`${name} takes no value, but got '${attached}'`);
    this.#flags[keyOf(flag)] = !isNegated(flag);
  }

  #readValue(flag: KnownFlag, attached: string | undefined): void {
    const { choices, repeat } = flag.definition;
    if (attached === undefined && this.#next >= this.#words.length)
      return this.#complain(`${flag.long} needs a value: <${flag.valueName ?? ""}>`);
    const value = attached ?? this.#take();
    if (choices?.includes(value) === false)
      return this.#complain(`${flag.long}: '${value}' is none of ${choices.join(", ")}${didYouMean(value, choices)}`);
    const key = keyOf(flag);
    if (repeat !== true) this.#flags[key] = value;
    else ((this.#flags[key] ??= []) as string[]).push(value);
  }

  #complain(problem: string): void {
    this.#problem ??= problem;
  }
}
