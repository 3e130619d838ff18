import { expect, test } from "vitest";
import { type LineChoice, processLines } from "./process-lines.ts";

const log = "own one\n[web] two\n[python3-0123abcd] three\n[web] four\nown five\n[web] six";

async function chosen(choice: Partial<LineChoice> & { process: string }, text = log): Promise<string> {
  // In pieces of three bytes: lines come in any.
  const bytes = Buffer.from(text);
  const pieces = async function* () {
    for (let at = 0; at < bytes.length; at += 3) yield bytes.subarray(at, at + 3);
  };
  let result = "";
  for await (const line of processLines(pieces(), { hasTimes: false, isFollowed: false, ...choice })) result += line;
  return result;
}

test.each([
  ["web", "[web] two\n[web] four\n[web] six"],
  ["python3-0123abcd", "[python3-0123abcd] three\n"],
  ["0123abcd", "[python3-0123abcd] three\n"],
  ["0123abcd99999999", "[python3-0123abcd] three\n"],
  ["0123", ""],
  ["entrypoint", "own one\nown five\n"],
  ["other", ""],
])("processLines: of '%s' only its own", async (process, lines) => {
  expect(await chosen({ process })).toBe(lines);
});

test("processLines: the last lines are counted among those of the process", async () => {
  expect(await chosen({ process: "web", tailLines: 2 })).toBe("[web] four\n[web] six");
});

test("processLines: the time before a line is no part of it", async () => {
  const text = "2026-01-01T00:00:00Z own\n2026-01-01T00:00:01Z [web] ü\n";
  expect(await chosen({ process: "web", hasTimes: true }, text)).toBe("2026-01-01T00:00:01Z [web] ü\n");
});
