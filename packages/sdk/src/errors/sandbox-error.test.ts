import { expect, test } from "vitest";
import { CommandError } from "../process/run-result.ts";
import { SandboxError } from "./sandbox-error.ts";

test("SandboxError: what is printed says what to do", () => {
  const error = new SandboxError("warm-pool-not-found", 'pool "a" not found');
  expect(error.message).toBe('pool "a" not found');
  expect(error.stack).toContain('pool "a" not found. Create the pool, or name another one.');
  expect(Object.keys(error)).not.toContain("requestId");
});

test("SandboxError: a message that is part of the error's name is found behind it", () => {
  expect(new SandboxError("not-found", "x").stack).toMatch(/^SandboxError: x\. Check the name/);
});

test("SandboxError: a message that says itself what to do gets no second advice", () => {
  const message = "sandbox a/b is suspended by its owner; resume it with agent-sandbox resume b";
  expect(new SandboxError("sandbox-held", message).advice).toBe(message);
});

test("CommandError: printing it does not show all output again", () => {
  const output = {
    stdout: "",
    stderr: "no",
    combined: "no",
    stdoutBytes: new Uint8Array(),
    stderrBytes: new Uint8Array(),
  };
  const error = new CommandError("x", {
    exitCode: 3,
    signal: undefined,
    timedOut: false,
    reason: undefined,
    droppedBytes: 0,
    ...output,
  });
  expect(error.advice).toBe("command 'x' exited with 3: no");
  expect(error.stack).toMatch(/^CommandError: command 'x' exited with 3: no\n/);
  expect(Object.keys(error)).toEqual(["code"]);
  expect(error.result.exitCode).toBe(3);
});
