import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readDevDir, rootDir } from "../../scripts/checkout.ts";
import { run } from "../examples/engine.ts";

const shells = ["bash", "zsh", "fish"] as const;
type Shell = (typeof shells)[number];

const timeoutMs = 60_000;
let scratch: string;
/** Where set-up unpacked the shells and groff. */
let unpacked: string;

beforeAll(async () => {
  scratch = mkdtempSync(path.join(tmpdir(), "cli-shells-"));
  unpacked = readDevDir("servers");
  for (const shell of shells) writeFileSync(scriptOf(shell), await printed("completion", shell));
});

afterAll(() => rmSync(scratch, { recursive: true }));

const scriptOf = (shell: Shell): string => path.join(scratch, shell);

async function printed(...args: readonly string[]): Promise<string> {
  const outcome = await run([path.join(rootDir, "agent-sandbox"), ...args], { timeoutMs });
  expect(outcome).toMatchObject({ exitCode: 0, stderr: "" });
  return outcome.stdout;
}

/** What each shell is given to complete a line: the script as its user sources it, and the shell's own machinery. */
function completionOf(shell: Shell, line: string): readonly string[] {
  const words = line.split(" ");
  const array = words.map((word) => `'${word}'`).join(" ");
  const last = words.at(-1) ?? "";
  if (shell === "fish") {
    const functions = path.join(unpacked, "usr/share/fish/functions");
    const script = `set fish_function_path ${functions}; source ${scriptOf(shell)}; complete -C '${line}'`;
    return [path.join(unpacked, "usr/bin/fish"), "--no-config", "-c", script];
  }
  if (shell === "bash") {
    const call = `COMP_WORDS=(${array}); COMP_CWORD=${words.length - 1}; _agent_sandbox; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return ["bash", "--norc", "-c", `source ${scriptOf(shell)}; ${call}`];
  }
  // Behind zsh's own matching, which a script has no line editor for: `compgen` gives what would be matched.
  const modules = path.join(unpacked, "usr/lib/x86_64-linux-gnu/zsh/5.9");
  const state = `words=(${array}); CURRENT=${words.length}; COMP_WORDS=(${array}); COMP_CWORD=${words.length - 1}`;
  const begin = `module_path=(${modules}); autoload -Uz compinit && compinit -D -u; source ${scriptOf(shell)}`;
  const match = `compgen -F _agent_sandbox -- '${last}' | while read -r word; do case $word in '${last}'*) print -r -- $word;; esac; done`;
  return [path.join(unpacked, "bin/zsh"), "-f", "-c", `${begin}; ${state}; ${match}`];
}

async function complete(shell: Shell, line: string): Promise<string[]> {
  const functions = path.join(unpacked, "usr/share/zsh/functions");
  const env = {
    ...process.env,
    HOME: scratch,
    LD_LIBRARY_PATH: path.join(unpacked, "usr/lib/x86_64-linux-gnu"),
    FPATH: readdirSync(functions)
      .map((name) => path.join(functions, name))
      .join(":"),
  };
  const { stdout, stderr } = await run(completionOf(shell, line), { env, timeoutMs });
  expect(stderr).toBe("");
  // fish tells the meaning of a word behind a tab.
  return stdout
    .split("\n")
    .map((text) => text.split("\t")[0] ?? "")
    .filter((word) => word !== "")
    .toSorted();
}

test.each(shells)("completion in %s: verbs, verbs of verbs and flags", async (shell) => {
  expect(await complete(shell, "agent-sandbox compl")).toEqual(["completion"]);
  expect(await complete(shell, "agent-sandbox image l")).toEqual(["load", "ls"]);
  expect(await complete(shell, "agent-sandbox run --comm")).toEqual(["--command-timeout"]);
  expect(await complete(shell, "agent-sandbox template -o json r")).toEqual(["rm"]);
});

test("man: the page has every verb, and groff finds nothing to complain about", async () => {
  const page = path.join(scratch, "agent-sandbox.1");
  writeFileSync(page, await printed("man"));
  const share = path.join(unpacked, "usr/share/groff/1.22.4");
  const env = {
    ...process.env,
    GROFF_TMAC_PATH: path.join(share, "tmac"),
    GROFF_FONT_PATH: path.join(share, "font"),
    PATH: `${path.join(unpacked, "usr/bin")}:${process.env["PATH"]}`,
  };
  const shown = await run(["groff", "-man", "-Tutf8", "-ww", "-P-cbou", page], { env, timeoutMs });
  expect(shown).toMatchObject({ exitCode: 0, stderr: "" });
  for (const verb of ["run", "exec", "suspend", "image", "doctor"]) {
    expect(shown.stdout).toMatch(new RegExp(`^ +${verb}\\b`, "m"));
  }
});
