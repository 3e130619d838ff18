import { expect, test } from "vitest";
import { Turns } from "./turns.ts";

test("Turns: work on one key is done in order, also after a failure, and other keys do not wait", async () => {
  const turns = new Turns();
  const said: string[] = [];
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const first = turns.run("a", async () => {
    await held;
    said.push("first");
    throw new Error("refused");
  });
  const second = turns.run("a", async () => said.push("second"));
  await turns.run("b", async () => said.push("other"));
  release();
  await expect(first).rejects.toThrow("refused");
  await second;
  expect(said).toEqual(["other", "first", "second"]);
});
