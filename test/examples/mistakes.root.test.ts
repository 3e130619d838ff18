import { readFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { ExampleEngine } from "./engine.ts";
import { collectReadings, type Reading, renderPage } from "./mistakes.ts";

let readings: readonly Reading[];
let engine: ExampleEngine;

beforeAll(async () => {
  engine = await ExampleEngine.start();
  readings = await collectReadings(engine);
}, 240_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

test("mistakes: every one is an error, in one or two lines, in every language", () => {
  const texts = readings.flatMap(({ said }) => Object.values(said));
  expect(texts.filter((text) => text === "no error" || text.split("\n").length > 2 || /^ +at /m.test(text))).toEqual(
    [],
  );
});

test("mistakes: docs/errors.md shows what users read", async () => {
  expect(renderPage(readings)).toBe(await readFile(path.join(rootDir, "docs/errors.md"), "utf8"));
});
