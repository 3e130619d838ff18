import { readFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { ExampleEngine, listExamples } from "./engine.ts";
import { firstExamples, runFirstExample } from "./first-example.ts";

/** The slowest takes 15 s on two idle cores; on busy ones several times that. Shorter than the test's own limit, so that its output is shown. */
const exampleTimeoutMs = 110_000;

/** What every example prints, in this order, with anything between. */
const expected: Readonly<Record<string, readonly RegExp[]>> = {
  "agent-pair": [
    /^reviewer: too long/m,
    /^approved: Sandboxes give every agent a place of its\.$/m,
    /^reviewer: suspended$/m,
    /^approved: The reviewer woke up for this sentence\.$/m,
    /^reviewer to writer: closed$/m,
  ],
  "code-interpreter": [
    /^stored 3$/m,
    /^17\.75$/m,
    /^TypeError: list indices/m,
    /^error: the snippet ran longer than 3 s/m,
    /^'total 53\.25'$/m,
  ],
  "coding-agent": [/exit code 1$/m, /exit code 0$/m, /^agent: slug\.py is written and its tests pass$/m, /^def slug/m],
  "dev-environment": [
    /^shown: version 1$/m,
    /^told: connected$/m,
    /^told: reload index\.html$/m,
    /^shown: version 2$/m,
  ],
  notebook: [
    /^cell 2: mean 21\.3/m,
    /^asleep$/m,
    /^cell 3: max 30$/m,
    /^woke and answered in [\d.]+ s$/m,
    /^saved cells: 3$/m,
  ],
  "warm-pool": [
    /^user +\d+ +warm +\S+ +example-pool-/m,
    /^10 claims in \S+, ([6-9]|10) warm; fastest \S+, median \S+, slowest \S+$/m,
  ],
};

let engine: ExampleEngine;

beforeAll(async () => {
  engine = await ExampleEngine.start();
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

test("examples: every example has its expected output", async () => {
  expect((await listExamples()).toSorted()).toEqual(Object.keys(expected).toSorted());
});

for (const [name, patterns] of Object.entries(expected)) {
  test(`examples: ${name} runs as its README says`, async () => {
    const cwd = path.join(rootDir, "examples", name);
    const script = commandsOf(await readFile(path.join(cwd, "README.md"), "utf8"));
    const { exitCode, stdout, stderr } = await engine.run(["sh", "-euc", script], { cwd, timeoutMs: exampleTimeoutMs });
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    expectInOrder(stdout, patterns);
  });
}

test.each(firstExamples)("first example: $readme runs as printed", async (example) => {
  const { exitCode, stdout, stderr } = await runFirstExample(engine, example);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(stdout).toMatch(example.prints);
});

test("examples: nothing is left running", async () => {
  const left = await engine.run(["agent-sandbox", "ls", "-A", "-o", "name"], { timeoutMs: 20_000 });
  // Members of the pool go with it; a deletion takes a moment.
  expect(left.stdout.split("\n").filter((line) => line !== "" && !line.includes("example-pool-"))).toEqual([]);
});

/** The first block of shell commands in a README. */
function commandsOf(readme: string): string {
  const block = /^```sh\n([\s\S]*?)^```$/m.exec(readme)?.[1];
  if (block === undefined) throw new Error("the README has no block of shell commands");
  return block;
}

function expectInOrder(text: string, patterns: readonly RegExp[]): void {
  let rest = text;
  for (const pattern of patterns) {
    const found = pattern.exec(rest);
    expect(found, `${String(pattern)} in\n${text}`).not.toBeNull();
    rest = rest.slice((found?.index ?? 0) + (found?.[0].length ?? 0));
  }
}
