import fc from "fast-check";
import { expect, test } from "vitest";
import type { VerbDefinition } from "../verb-definition.ts";
import { parseWords } from "./parse-words.ts";

const verb: VerbDefinition = {
  name: "try",
  summary: "",
  flags: [
    { flag: "-i, --stdin", text: "" },
    { flag: "-t, --tty", text: "" },
    { flag: "-o, --output <format>", text: "", choices: ["json", "yaml"] },
    { flag: "-e, --env <pair>", text: "", repeat: true },
    { flag: "-n, --name <name>", text: "", value: "box" },
    { flag: "--no-wait", text: "" },
  ],
};
const passing: VerbDefinition = { ...verb, passThrough: true };
const opaque: VerbDefinition = { name: "role", summary: "", isOpaque: true, passThrough: true };

/** What the verb gets where no flag is given. */
const defaults = { name: "box", wait: true };

interface Given {
  readonly words: readonly string[];
  readonly args?: readonly string[];
  readonly flags?: Readonly<Record<string, unknown>>;
  readonly of?: VerbDefinition;
}

const given: Readonly<Record<string, Given>> = {
  nothing: { words: [] },
  "a long flag": { words: ["--stdin"], flags: { stdin: true } },
  "a short flag": { words: ["-i"], flags: { stdin: true } },
  "two short flags in one word": { words: ["-it"], flags: { stdin: true, tty: true } },
  "a value behind its long flag": { words: ["--output", "json"], flags: { output: "json" } },
  "a value attached to its long flag": { words: ["--output=json"], flags: { output: "json" } },
  "a value behind its short flag": { words: ["-o", "json"], flags: { output: "json" } },
  "a value attached to its short flag": { words: ["-ojson"], flags: { output: "json" } },
  "a value at the end of short flags": { words: ["-itojson"], flags: { stdin: true, tty: true, output: "json" } },
  "a value behind short flags": { words: ["-io", "json"], flags: { stdin: true, output: "json" } },
  "an empty value attached": { words: ["--name="], flags: { name: "" } },
  "an empty value behind": { words: ["--name", ""], flags: { name: "" } },
  "a value with an equals sign": { words: ["--env=A=1=2"], flags: { env: ["A=1=2"] } },
  "a value that looks like a flag": { words: ["--name", "-o", "--env", "--"], flags: { name: "-o", env: ["--"] } },
  "a value that is the word for help": { words: ["--name", "--help"], flags: { name: "--help" } },
  "a flag twice: the last one counts": { words: ["--name", "a", "-n", "b"], flags: { name: "b" } },
  "a switch twice": { words: ["-i", "--stdin", "-ii"], flags: { stdin: true } },
  "a flag that may be repeated": { words: ["-e", "A", "--env=B", "-eC"], flags: { env: ["A", "B", "C"] } },
  "a negation": { words: ["--no-wait"], flags: { wait: false } },
  "flags among arguments": { words: ["a", "-i", "b"], args: ["a", "b"], flags: { stdin: true } },
  "an empty argument": { words: ["", "a", ""], args: ["", "a", ""] },
  "a dash alone": { words: ["-"], args: ["-"] },
  "negative numbers": { words: ["-5", "-0.5", "-.5"], args: ["-5", "-0.5", "-.5"] },
  "two dashes alone": { words: ["--"] },
  "flags behind two dashes": {
    words: ["-i", "--", "-t", "--nope", "-h"],
    args: ["-t", "--nope", "-h"],
    flags: { stdin: true },
  },
  "two dashes twice": { words: ["--", "--", "a"], args: ["--", "a"] },
  "pass-through: flags behind the first argument": {
    of: passing,
    words: ["-i", "ls", "-t", "--", "--help"],
    args: ["ls", "-t", "--", "--help"],
    flags: { stdin: true },
  },
  "pass-through: two dashes first": { of: passing, words: ["--", "-t", "--"], args: ["-t", "--"] },
  "pass-through: an empty first argument": { of: passing, words: ["", "-t"], args: ["", "-t"] },
  "opaque: anything": { of: opaque, words: ["--x=1", "-h", "--", ""], args: ["--x=1", "-h", "--", ""], flags: {} },
};

test.each(Object.entries(given))("parseWords: %s", (_, { words, args = [], flags = {}, of = verb }) => {
  const all = of === opaque ? flags : { ...defaults, ...flags };
  expect(parseWords(of, words)).toEqual({ args, flags: all, wantsHelp: false, problem: undefined });
});

test.each([
  [["--frobnicate"], "unknown flag '--frobnicate'"],
  [["--outptu", "json"], "unknown flag '--outptu'; did you mean '--output'?"],
  [["--frobnicate=secret"], "unknown flag '--frobnicate'"],
  [["--=x"], "unknown flag '--'; did you mean '--env' or '--help' or '--name'?"],
  [["--no-stdin"], "unknown flag '--no-stdin'; did you mean '--stdin'?"],
  [["--wait"], "unknown flag '--wait'"],
  [["--__proto__=x"], "unknown flag '--__proto__'"],
  [["--constructor"], "unknown flag '--constructor'"],
  [["-x"], "unknown flag '-x'"],
  [["-ixt"], "unknown flag '-x'"],
  [["-🙂"], "unknown flag '-🙂'"],
  [["-\n"], "unknown flag '-\n'"],
  [["--output"], "--output needs a value: <format>"],
  [["-io"], "--output needs a value: <format>"],
  [["--stdin=yes"], "--stdin takes no value, but got 'yes'"],
  [["--stdin="], "--stdin takes no value, but got ''"],
  [["--output", "xml"], "--output: 'xml' is none of json, yaml"],
  [["-o=json"], "--output: '=json' is none of json, yaml; did you mean 'json'?"],
  [["-o", ""], "--output: '' is none of json, yaml"],
  [["--frobnicate", "-x", "--output"], "unknown flag '--frobnicate'"],
])("parseWords: %j is refused", (words, problem) => {
  expect(parseWords(verb, words)).toMatchObject({ problem, wantsHelp: false });
});

test.each([[["-h"]], [["--help"]], [["-ith"]], [["a", "--help", "b"]], [["--nope", "-o", "xml", "-h"]]])(
  "parseWords: %j asks for help",
  (words) => {
    expect(parseWords(verb, words).wantsHelp).toBe(true);
  },
);

const anyWord = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.constantFrom(
    "-",
    "--",
    "",
    "-h",
    "-i",
    "-it",
    "-o",
    "-e",
    "--env",
    "--env=",
    "--name",
    "--no-wait",
    "--stdin",
    "a",
  ),
);

test("parseWords: whatever the words are, arguments are words in their order, and nothing is invented", () => {
  fc.assert(
    fc.property(fc.array(anyWord), fc.constantFrom(verb, passing, opaque), (words, of) => {
      const { args, flags } = parseWords(of, words);
      let at = 0;
      for (const arg of args) {
        at = words.indexOf(arg, at) + 1;
        expect(at).toBeGreaterThan(0);
      }
      expect(Object.keys(flags).every((key) => ["stdin", "tty", "output", "env", "name", "wait"].includes(key))).toBe(
        true,
      );
    }),
  );
});

test("parseWords: what stands behind two dashes comes out as it is", () => {
  fc.assert(
    fc.property(fc.array(anyWord), fc.constantFrom(verb, passing, opaque), (words, of) => {
      expect(parseWords(of, ["--", ...words])).toMatchObject({ args: words, wantsHelp: false, problem: undefined });
    }),
  );
});

test("parseWords: a value is the same however it is written", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", minLength: 1 }), (value) => {
      const ways = [["--env", value], [`--env=${value}`], ["-e", value], [`-e${value}`]];
      for (const words of ways) expect(parseWords(verb, words).flags["env"]).toEqual([value]);
    }),
  );
});

test("parseWords: a hundred thousand words are no trouble", () => {
  const pairs = Array.from({ length: 50_000 }, (_, index) => ["-e", `A${index}=1`]).flat();
  expect((parseWords(verb, pairs).flags["env"] as string[]).length).toBe(50_000);
  expect(parseWords(passing, ["a", ...pairs]).args.length).toBe(100_001);
  expect(parseWords(verb, [`-${"i".repeat(100_000)}`]).flags["stdin"]).toBe(true);
});
