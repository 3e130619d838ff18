import { expect, test } from "vitest";
import { formatAge } from "../age.ts";
import { formatBytes } from "../bytes.ts";
import { formatTable } from "./table.ts";

const rows = [
  ["dev", "ready", "registry.example/team/image:1.2.3"],
  ["a-longer-name", "starting", "host"],
];

test("formatTable: columns are aligned and lines have no trailing space", () => {
  expect(formatTable(["NAME", "STATE", "IMAGE"], rows)).toBe(
    "NAME            STATE      IMAGE\n" +
      "dev             ready      registry.example/team/image:1.2.3\n" +
      "a-longer-name   starting   host\n",
  );
});

test("formatTable: on a terminal the widest column is cut until a row fits", () => {
  const lines = formatTable(["NAME", "STATE", "IMAGE"], rows, { width: 45 }).trimEnd().split("\n");
  expect(Math.max(...lines.map((line) => line.length))).toBe(45);
  expect(lines[1]).toBe("dev             ready      registry.example/…");
});

test("formatTable: a newline in a cell does not break the table", () => {
  expect(formatTable(["A"], [["x\ny"]])).toBe("A\nx y\n");
});

test("formatAge: two units at most", () => {
  expect([5_000, 119_000, 192_000, 3_600_000 * 4 + 420_000, 86_400_000 * 9].map(formatAge)).toEqual([
    "5s",
    "119s",
    "3m12s",
    "4h7m",
    "9d",
  ]);
});

test("formatBytes: three digits at most", () => {
  expect([0, 1536, 241_172_480].map(formatBytes)).toEqual(["0 B", "1.5 KiB", "230 MiB"]);
});
