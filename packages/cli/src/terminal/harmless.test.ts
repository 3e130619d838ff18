import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { harmless } from "./harmless.ts";

test.each([
  ["plain text stays, with its tabs and line ends", "a\tb\nc ü 漢 👩‍💻", "a\tb\nc ü 漢 👩‍💻"],
  ["an escape sequence shows", "\x1b[31mred", "␛[31mred"],
  ["an operating system command shows", "\x1b]0;title\x07", "␛]0;title␇"],
  ["an eight-bit control shows by its number", "\u009b2J", "<U+009B>2J"],
  ["a return alone cannot rewrite a line", "real\rfake", "real␍fake"],
  ["a return before a line feed is a line end", "one\r\ntwo", "one\ntwo"],
  ["marks that reorder text show", "a\u202eb\u2066c\u200f", "a<U+202E>b<U+2066>c<U+200F>"],
  ["letters that nobody sees show", "a\u{e0041}", "a<U+E0041>"],
  ["delete and null show", "\x7f\0", "␡␀"],
])("harmless: %s", (_title, text, expected) => {
  expect(harmless(text)).toBe(expected);
});

/** Runs a few lines that have `out`, guarded, and `raw`, the stream behind it, with a terminal as standard output or without. */
function shown(lines: string, isTerminal: boolean): string {
  const program = `import { guarded, unguarded } from ${JSON.stringify(path.join(import.meta.dirname, "harmless.ts"))};
    const out = guarded(process.stdout); const raw = unguarded(out); ${lines}`;
  const argv = [process.execPath, "--input-type=module", "--eval", program];
  const quoted = argv.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  const [command = "", ...args] = isTerminal ? ["script", "-qec", quoted, "/dev/null"] : argv;
  return spawnSync(command, args, { encoding: "utf8", timeout: 20_000, stdio: ["ignore", "pipe", "inherit"] }).stdout;
}

const attack = `out.write(Buffer.from("\\x1b]0;mine\\x07"));`;

test("guarded: what goes to a terminal is made harmless", () => {
  expect(shown(attack, true)).toBe("␛]0;mine␇");
});

test("guarded: what goes into a pipe is left alone, byte by byte", () => {
  expect(shown(attack, false)).toBe("\x1b]0;mine\x07");
});

test("guarded: characters and line ends that two chunks share are put together", () => {
  const split = `out.write(Buffer.from([0xc3])); out.write(Buffer.from([0xbc, 13])); out.write(Buffer.from([10, 0x9b]));`;
  expect(shown(split, true)).toBe("ü\r\n�");
});

test("unguarded: what the command draws itself passes", () => {
  expect(shown(`raw.write("\\x1b[2K"); out.write("ok");`, true)).toBe("\x1b[2Kok");
});
