import fc from "fast-check";
import { expect, test } from "vitest";
import { CliError } from "../cli-error.ts";
import { groups } from "../definitions/definitions.ts";
import { exitCodes } from "../exit-codes.ts";
import { type Command, parseCommand } from "./parse-command.ts";

function parse(...words: string[]): Extract<Command, { do: "run" }> {
  const command = parseCommand(words);
  if (command.do !== "run") throw new Error(`help instead of ${words.join(" ")}`);
  return command;
}

/** Whose help a command line shows. */
function helpOf(...words: string[]): string | undefined {
  const command = parseCommand(words);
  return command.do === "help" ? command.path.map(({ name }) => name).join(" ") : undefined;
}

test("run: flags behind the command are the command's", () => {
  const { args, flags } = parse("run", "--image", "python", "-it", "python", "-c", "print(1)", "--image");
  expect(args).toEqual(["python", "-c", "print(1)", "--image"]);
  expect(flags).toMatchObject({ image: "python", stdin: true, tty: true });
});

test("run: two dashes end the flags", () => {
  const { args, flags } = parse("run", "-e", "A=1", "-e", "B", "--", "ls", "-l");
  expect(args).toEqual(["ls", "-l"]);
  expect(flags["env"]).toEqual(["A=1", "B"]);
});

test("exec: the sandbox comes first, the rest is the command", () => {
  expect(parse("exec", "-n", "ns", "dev", "--", "ls", "-n").args).toEqual(["dev", "--", "ls", "-n"]);
});

test("up: every address has its default", () => {
  expect(parse("up").flags).toMatchObject({
    listen: "127.0.0.1:7443",
    routerListen: "127.0.0.1:7080",
    metricsListen: "127.0.0.1:7090",
  });
});

test("controller: takes flags it does not know", () => {
  const words = ["--leader-elect=false", "--extensions", "--help"];
  expect(parse("controller", ...words).args).toEqual(words);
});

test("image: has verbs of its own", () => {
  expect(parse("image", "load", "a.tar", "--name", "x").flags).toEqual({ name: "x" });
});

test("delete: waits unless told not to", () => {
  expect(parse("delete", "dev").flags).toEqual({ wait: true });
  expect(parse("delete", "dev", "--no-wait").flags).toEqual({ wait: false });
});

test.each([
  [["ls", "-o", "xml"], "--output: 'xml' is none of json, yaml, name, wide", "See: agent-sandbox ls --help"],
  [["ls", "dev"], "'dev' is one argument too many", "Usage: agent-sandbox ls [flags]"],
  [["cp", "a", "b", "c"], "'c' is one argument too many", "Usage: agent-sandbox cp [flags] <from> <to>"],
  [["cp", "a"], "<to> is missing", "Usage: agent-sandbox cp [flags] <from> <to>"],
  [["exec"], "<sandbox> is missing", "Usage: agent-sandbox exec [flags] <sandbox> [command...]"],
  [["suspend"], "<sandbox> is missing", "Usage: agent-sandbox suspend [flags] <sandbox...>"],
  [["man", ""], "'' is one argument too many", "Usage: agent-sandbox man"],
  [["image", "rm"], "<images> is missing", "Usage: agent-sandbox image rm [flags] <images...>"],
  [["lss"], "unknown verb 'lss'; did you mean 'ls'?", "See: agent-sandbox --help"],
  [["rnu", "--help"], "unknown verb 'rnu'; did you mean 'run'?", "See: agent-sandbox --help"],
  [[""], "unknown verb ''", "See: agent-sandbox --help"],
  [["image", "lod"], "unknown verb 'image lod'; did you mean 'load'?", "See: agent-sandbox image --help"],
  [["help", "lss"], "unknown verb 'lss'; did you mean 'ls'?", "See: agent-sandbox --help"],
  [["help", "ls", "x"], "unknown verb 'ls x'", "See: agent-sandbox ls --help"],
  [
    ["--data-dir", "/d", "ls"],
    "unknown flag '--data-dir'",
    "Flags go behind the verb: agent-sandbox <verb> [flags] [arguments]",
  ],
])("parseCommand: %j is refused", (words, message, hint) => {
  expect(() => parseCommand(words)).toThrow(new CliError(message, { exitCode: exitCodes.usage, hint }));
});

test.each([
  [[], ""],
  [["-h"], ""],
  [["--help", "ls"], ""],
  [["help"], ""],
  [["help", "--help"], ""],
  [["--", "help"], ""],
  [["ls", "--help"], "ls"],
  [["help", "ls"], "ls"],
  [["help", "controller"], "controller"],
  [["image", "-h"], "image"],
  [["image", "help"], "image"],
  [["image", "ls", "-h"], "image ls"],
  [["help", "image", "ls"], "image ls"],
  [["image", "help", "ls"], "image ls"],
  [["cp", "--help"], "cp"],
])("parseCommand: %j shows help", (words, path) => {
  expect(helpOf(...words)).toBe(path);
  expect(parseCommand(words)).toMatchObject({ isAsked: true });
});

test("parseCommand: a verb that is missing was no question for help", () => {
  expect(parseCommand(["image"])).toMatchObject({ do: "help", isAsked: false });
});

test("parseCommand: help behind the command that is run is the command's", () => {
  expect(parse("run", "ls", "--help").args).toEqual(["ls", "--help"]);
  expect(parse("exec", "dev", "-h").args).toEqual(["dev", "-h"]);
});

test("parseCommand: whatever the words are, it answers or says that they make no sense", () => {
  const all = groups.flatMap(({ verbs }) => verbs);
  const verb = fc.constantFrom(
    ...all.flatMap(({ name, verbs }) => [[name], ...(verbs ?? []).map((one) => [name, one.name])]),
  );
  const flags = all.flatMap((one) => [one, ...(one.verbs ?? [])]).flatMap((one) => one.flags ?? []);
  const word = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.constantFrom("", "-", "--", "-h", "help", "json", ...flags.flatMap(({ flag }) => flag.split(/, | /))),
  );
  fc.assert(
    fc.property(fc.oneof(verb, fc.constant([])), fc.array(word), (path, words) => {
      try {
        expect(parseCommand([...path, ...words]).do).toMatch(/^(run|help)$/);
      } catch (error) {
        expect(error).toBeInstanceOf(CliError);
        expect((error as CliError).exitCode).toBe(exitCodes.usage);
      }
    }),
  );
});
