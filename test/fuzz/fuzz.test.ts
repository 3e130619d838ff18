import { expect, test } from "vitest";
import { allTargets } from "./all-targets.ts";
import { readCorpus } from "./corpus.ts";
import { search } from "./search.ts";

/** The same inputs on every run. */
const seed = 20;

/** Beside the committed corpus; long searches are `npm run fuzz`. */
const executionsMax = process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? 100_000 : 1_500;

test.each(allTargets)("fuzz: $name keeps its promises", { timeout: 600_000 }, async (target) => {
  const corpus = readCorpus(target);
  const isOver = (executions: number): boolean => executions >= corpus.length + executionsMax;
  const { crash, executions } = await search({ target, corpus, seed, isOver });
  expect(
    crash === undefined ? undefined : { input: crash.input.toString("latin1"), error: crash.error },
  ).toBeUndefined();
  expect(executions).toBeGreaterThan(executionsMax);
});

test("fuzz: a search finds a promise that is broken deep inside", async () => {
  const target = {
    name: "planted",
    seeds: ["key=1"],
    dictionary: ["key=", "!"],
    run: (input: Buffer) => {
      if (input.toString("latin1").startsWith("key=!")) throw new Error("planted");
    },
  };
  const corpus = [Buffer.from("key=1")];
  const { crash } = await search({ target, corpus, seed, isOver: (executions) => executions > 50_000 });
  expect(crash?.error.message).toBe("planted");
});
