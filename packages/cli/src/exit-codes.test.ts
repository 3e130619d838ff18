import { expect, test } from "vitest";
import { exitCodeFor, exitCodes } from "./exit-codes.ts";

test.each(["ready-timeout", "wait-timeout", "request-timeout", "command-timeout"] as const)(
  "exitCodeFor: %s is the code for what took too long",
  (code) => {
    expect(exitCodeFor(code)).toBe(exitCodes.timeout);
  },
);

test("exitCodeFor: a command that ended with its sandbox was killed", () => {
  expect(exitCodeFor("process-ended")).toBe(137);
});
