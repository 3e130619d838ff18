import { expect, test } from "vitest";
import { exitOf, shellCommand } from "./exec-process.ts";

test("shellCommand: directory and environment are arguments, never text", () => {
  const words = shellCommand({ command: ["ls", "a b"], cwd: "/x y", env: { A: "$(id)" } });
  expect(words.slice(3)).toEqual(["sh", "/x y", "env", "A=$(id)", "ls", "a b"]);
});

test("shellCommand: without an environment there is no env", () => {
  expect(shellCommand({ command: ["ls"] }).slice(3)).toEqual(["sh", "", "ls"]);
});

test("exitOf: reads the code of a failed command and of one that could not start", () => {
  const failed = {
    status: "Failure",
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: "7" }] },
  };
  expect(exitOf(JSON.stringify(failed), false)).toEqual({ code: 7, timedOut: false });
  expect(exitOf('{"status":"Success"}', false)).toEqual({ code: 0, timedOut: false });
  expect(exitOf('{"status":"Failure","message":"no such file"}', true)).toEqual({ code: 126, timedOut: true });
});
