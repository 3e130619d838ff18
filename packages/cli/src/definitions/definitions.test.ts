import { expect, test } from "vitest";
import { keyOf, readFlag } from "../flag-notation.ts";
import { readArguments } from "../parsing/argument-notation.ts";
import { completionWords } from "../verbs/completion.ts";
import { manualPage } from "../verbs/man.ts";
import { groups } from "./definitions.ts";

const top = groups.flatMap(({ verbs }) => verbs);
const all = top.flatMap((verb) => [verb, ...(verb.verbs ?? [])]);

test("definitions: every verb is in the completion and in the manual", () => {
  const names = top.map(({ name }) => name);
  expect(completionWords(groups).get("")).toEqual(names);
  const manual = manualPage(groups);
  for (const name of names) expect(manual).toContain(`.B ${name.replaceAll("-", "\\-")}`);
});

test("definitions: every verb's module can be loaded", async () => {
  for (const { name, load, verbs } of all)
    expect(typeof (await load?.(groups)), name).toBe(verbs === undefined ? "function" : "undefined");
});

test("definitions: no verb has two flags of one name, nor one that help has", () => {
  for (const { name, flags = [] } of all) {
    const read = flags.map(readFlag);
    const names = read.flatMap(({ short, long }) => (short === undefined ? [long] : [short, long]));
    expect(new Set([...names, "-h", "--help"]).size, name).toBe(names.length + 2);
    expect(new Set(read.map(keyOf)).size, name).toBe(read.length);
  }
});

test("definitions: what is needed comes before what may be left out, and what takes all the rest is last", () => {
  for (const { name, args } of all) {
    const read = readArguments(args);
    expect(
      read.map(({ isRequired }) => isRequired).toSorted((a, b) => Number(b) - Number(a)),
      name,
    ).toEqual(read.map(({ isRequired }) => isRequired));
    expect(
      read.slice(0, -1).some(({ isVariadic }) => isVariadic),
      name,
    ).toBe(false);
  }
});
