import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { loginShell } from "./login-shell.ts";

const [shell = "", ...args] = loginShell;

/** Runs the choice with programs that say their names; `uid` is what `id` answers. */
function chosen(uid: string, programs: readonly string[]): string {
  const dir = mkdtempSync(path.join(os.tmpdir(), "as-shell-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const program = (name: string, text: string): void =>
    writeFileSync(path.join(dir, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  program("id", `echo ${uid}`);
  for (const name of programs) program(name, `echo ${name} "$@"`);
  return execFileSync(shell, args, { env: { PATH: dir }, encoding: "utf8", input: "echo real shell\n" }).trim();
}

test("loginShell: bash where there is one, else sh, for a user without an entry", () => {
  expect(chosen("4294967294", ["bash", "sh"])).toBe("bash -l");
  expect(chosen("4294967294", ["sh"])).toBe("sh -l");
});

test("loginShell: a user who may not log in gets a shell all the same", () => {
  const [, uid = ""] = /^[^:]*:[^:]*:(\d+):.*nologin$/m.exec(readFileSync("/etc/passwd", "utf8")) ?? [];
  expect(chosen(uid, ["bash"])).toBe("bash -l");
});

test("loginShell: without any other, /bin/sh", () => {
  expect(chosen("4294967294", [])).toContain("real shell");
});

test("loginShell: the Python SDK has the same text", () => {
  const file = new URL("../../../../sdks/python/src/", import.meta.url);
  const options = execFileSync("grep", ["-rh", "--include=options.py", "while IFS=:", file.pathname], {
    encoding: "utf8",
  });
  expect(options).toContain(args[1]);
});
