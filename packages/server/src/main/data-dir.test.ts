import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { closedAncestor } from "./data-dir.ts";

const top = realpathSync(mkdtempSync(path.join(tmpdir(), "data-dir-")));
mkdirSync(path.join(top, "closed/inner/data"), { recursive: true });
mkdirSync(path.join(top, "links"));
symlinkSync(path.join(top, "closed/inner/data"), path.join(top, "links/data"));

afterAll(() => rmSync(top, { recursive: true }));

const isOpen = (dir: string): boolean => !dir.startsWith(path.join(top, "closed"));

test("closedAncestor: names the topmost directory that cannot be entered", () => {
  expect(closedAncestor(path.join(top, "closed/inner/data"), isOpen)).toBe(path.join(top, "closed"));
});

test("closedAncestor: the directory itself may be closed, for the engine opens it", () => {
  expect(closedAncestor(path.join(top, "closed"), isOpen)).toBeUndefined();
});

test("closedAncestor: looks above what a link leads to", () => {
  expect(closedAncestor(path.join(top, "links/data"), isOpen)).toBe(path.join(top, "closed"));
});
