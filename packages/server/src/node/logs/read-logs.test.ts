import { appendFile, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { tryParseLogLine } from "./log-line.ts";
import { type LogOptions, readLogs } from "./read-logs.ts";

let directory: string;
let path: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "logs-"));
  path = join(directory, "container.log");
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const line = (second: number, text: string, stream = "stdout", tag = "F"): string =>
  `2026-03-01T10:00:${String(second).padStart(2, "0")}.000000000Z ${stream} ${tag} ${text}\n`;

async function read(options: Partial<LogOptions> = {}): Promise<string> {
  const chunks: Buffer[] = [];
  const request = {
    path,
    options: { follow: false, timestamps: false, ...options },
    isLive: () => false,
    signal: new AbortController().signal,
  };
  for await (const chunk of readLogs(request)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

test("readLogs: joins partial lines and both streams", async () => {
  await writeFile(path, line(1, "a") + line(2, "b", "stderr") + line(3, "half ", "stdout", "P") + line(3, "whole"));
  expect(await read()).toBe("a\nb\nhalf whole\n");
});

test.each<[string, Partial<LogOptions>, string]>([
  ["tail", { tailLines: 2 }, "b\nc\n"],
  ["tail of none", { tailLines: 0 }, ""],
  ["since", { sinceMs: Date.parse("2026-03-01T10:00:02Z") }, "b\nc\n"],
  ["limit", { limitBytes: 3 }, "a\nb"],
  ["one stream", { stream: "stderr" }, "b\n"],
  ["timestamps", { timestamps: true, tailLines: 1 }, "2026-03-01T10:00:03.000000000Z c\n"],
])("readLogs: %s", async (_title, options, expected) => {
  await writeFile(path, line(1, "a") + line(2, "b", "stderr") + line(3, "c"));
  expect(await read(options)).toBe(expected);
});

test("readLogs: reads rotated files first, the oldest first", async () => {
  await writeFile(`${path}.2`, line(1, "oldest"));
  await writeFile(`${path}.1`, line(2, "older"));
  await writeFile(path, line(3, "now"));
  expect(await read()).toBe("oldest\nolder\nnow\n");
});

test("readLogs: a log that is a link is not followed", async () => {
  await symlink("/etc/passwd", path);
  expect(await read()).toBe("");
});

test("readLogs: no log yet is an empty one", async () => {
  expect(await read()).toBe("");
});

test("readLogs: lines that are not the writer's are left out", async () => {
  await writeFile(path, `garbage\n${line(1, "good")}2026 stdout F bad time\n`);
  expect(await read()).toBe("good\n");
});

test("readLogs: following goes on over a rotation and ends with the container", async () => {
  await writeFile(path, line(1, "first"));
  let isLive = true;
  const seen: string[] = [];
  const request = {
    path,
    options: { follow: true, timestamps: false },
    isLive: () => isLive,
    signal: new AbortController().signal,
  };
  for await (const chunk of readLogs(request)) {
    seen.push(chunk.toString());
    if (seen.length === 1) await appendFile(path, line(2, "second"));
    if (seen.length === 2) {
      await rename(path, `${path}.1`);
      await writeFile(path, line(3, "third"));
    }
    if (seen.length === 3) isLive = false;
  }
  expect(seen).toEqual(["first\n", "second\n", "third\n"]);
});

test.each(["", "x", "2026-03-01T10:00:00Z stdout X text", "2026-03-01T10:00:00Z other F text"])(
  "tryParseLogLine: %j is not a line",
  (text) => {
    expect(tryParseLogLine(Buffer.from(text))).toBeUndefined();
  },
);

test("readLogs: the tail of a log of long lines is found without holding it", async () => {
  const long = "x".repeat(60_000);
  await writeFile(path, Array.from({ length: 400 }, (_each, index) => line(1, `${index}-${long}`)).join(""));
  const request = { path, options: { follow: false, timestamps: false, tailLines: 350 }, isLive: () => false };
  let [most, lines] = [0, 0];
  for await (const chunk of readLogs({ ...request, signal: new AbortController().signal })) {
    most = Math.max(most, chunk.length);
    lines += chunk.toString().split("\n").length - 1;
  }
  expect(lines).toBe(350);
  expect(most).toBeLessThan(256 * 1024);
});

test("readLogs: a container that never stops writing is followed at a fixed pace", async () => {
  await writeFile(path, "");
  const stop = new AbortController();
  const follow = { path, options: { follow: true, timestamps: false }, isLive: () => true, signal: stop.signal };
  let size = 0;
  const reading = (async () => {
    for await (const chunk of readLogs(follow)) size += chunk.length;
  })();
  await new Promise((resolve) => setTimeout(resolve, 100));
  const startMs = performance.now();
  await appendFile(path, line(1, "y".repeat(1_000)).repeat(32_000));
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  stop.abort();
  await reading;
  expect(size).toBeGreaterThan(256 * 1024);
  expect(size).toBeLessThan(((performance.now() - startMs) / 1000 + 0.5) * 4 * 1024 * 1024);
});
