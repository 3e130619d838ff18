import { CommanderError } from "commander";
import { expect, test } from "vitest";
import { groups } from "./definitions/definitions.ts";
import { createProgram } from "./program.ts";
import { completionWords } from "./verbs/completion.ts";
import { manualPage } from "./verbs/man.ts";

interface Parsed {
  readonly args: readonly string[];
  readonly flags: Readonly<Record<string, unknown>>;
}

async function parse(...line: string[]): Promise<Parsed> {
  let parsed: Parsed | undefined;
  const program = createProgram((_verb, args, flags) => {
    parsed = { args, flags };
    return Promise.resolve();
  }, line[0]);
  for (const command of [program, ...program.commands]) command.configureOutput({ writeErr: () => undefined });
  await program.parseAsync(line, { from: "user" });
  return parsed as Parsed;
}

test("run: flags behind the command are the command's", async () => {
  const { args, flags } = await parse("run", "--image", "python", "-it", "python", "-c", "print(1)", "--image");
  expect(args).toEqual(["python", "-c", "print(1)", "--image"]);
  expect(flags).toMatchObject({ image: "python", stdin: true, tty: true });
});

test("run: two dashes end the flags", async () => {
  expect((await parse("run", "-e", "A=1", "-e", "B", "--", "ls", "-l")).args).toEqual(["ls", "-l"]);
  expect((await parse("run", "-e", "A=1", "-e", "B", "--", "ls")).flags["env"]).toEqual(["A=1", "B"]);
});

test("exec: the sandbox comes first, the rest is the command", async () => {
  expect((await parse("exec", "-n", "ns", "dev", "--", "ls", "-n")).args).toEqual(["dev", "--", "ls", "-n"]);
});

test("up: every address has its default", async () => {
  expect((await parse("up")).flags).toMatchObject({
    listen: "127.0.0.1:7443",
    routerListen: "127.0.0.1:7080",
    metricsListen: "127.0.0.1:7090",
  });
});

test("controller: takes flags it does not know", async () => {
  expect((await parse("controller", "--leader-elect=false", "--extensions")).args).toEqual([
    "--leader-elect=false",
    "--extensions",
  ]);
});

test("image: has verbs of its own", async () => {
  expect((await parse("image", "load", "a.tar", "--name", "x")).flags).toEqual({ name: "x" });
});

test("ls: an unknown output format is refused", async () => {
  await expect(parse("ls", "-o", "xml")).rejects.toThrow(CommanderError);
});

test("createProgram: has the verb that is named, or all", () => {
  const run = (): Promise<void> => Promise.resolve();
  const namesFor = (word?: string): string[] => createProgram(run, word).commands.map((command) => command.name());
  const all = groups.flatMap(({ verbs }) => verbs.map(({ name }) => name));
  expect(namesFor("ls")).toEqual(["ls"]);
  expect(namesFor()).toEqual(all);
  expect(namesFor("help")).toEqual(all);
  expect(namesFor("lss")).toEqual(all);
});

test("definitions: every verb is in the completion and in the manual", () => {
  const names = groups.flatMap(({ verbs }) => verbs.map(({ name }) => name));
  expect(completionWords().get("")).toEqual(names);
  const manual = manualPage();
  for (const name of names) expect(manual).toContain(`.B ${name.replaceAll("-", "\\-")}`);
});

test("definitions: every verb's module can be loaded", async () => {
  const all = groups.flatMap(({ verbs }) => verbs.flatMap((verb) => [verb, ...(verb.verbs ?? [])]));
  for (const { name, load, verbs } of all)
    expect(typeof (await load?.()), name).toBe(verbs === undefined ? "function" : "undefined");
});
