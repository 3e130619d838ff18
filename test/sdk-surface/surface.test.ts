import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { readDevDir, rootDir } from "../../scripts/checkout.ts";
import { goSurface } from "./go-surface.ts";
import type { Surface } from "./surface.ts";
import {
  expectedSurface,
  failureCodes,
  type Language,
  languages,
  readTable,
  unexplained,
  withoutFailures,
} from "./surface-table.ts";
import { typescriptSurface } from "./typescript-surface.ts";

/** Compilers and interpreters start cold on two busy cores. */
const timeoutMs = 60_000;

const table = readTable();

function pythonSurface(twin: "sync" | "async"): Surface {
  const args = [path.join(import.meta.dirname, "python_surface.py"), twin];
  const env = { ...process.env, PYTHONPATH: path.join(rootDir, "sdks/python/src"), PYTHONDONTWRITEBYTECODE: "1" };
  const printed = execFileSync(path.join(readDevDir("python"), "bin/python"), args, { env, encoding: "utf8" });
  return new Map(Object.entries(JSON.parse(printed) as Record<string, string>));
}

const surfaceOf: Readonly<Record<Language, () => Surface>> = {
  typescript: typescriptSurface,
  python: () => pythonSurface("sync"),
  go: goSurface,
};

/** A type without what is about waiting, absence and being read-only, which each language says in its own way. */
function plainType(type: string, language: Language): string {
  if (language === "go") return type.replaceAll("*", "").replace(", error]", "]");
  if (language === "python")
    return type
      .replace(/ \| None$/, "")
      .replace("builtins.", "")
      .replace(", None, None]", "]");
  return type
    .replace(/^Promise<(.*)>$/, "$1")
    .replaceAll("<ArrayBufferLike>", "")
    .replace(", any, any>", ">")
    .replace(/ \| undefined$/, "")
    .replace(/^readonly /, "");
}

test.each(languages)(
  "sdk surface: %s exports what the table says, nothing more and nothing less",
  (language) => {
    const [expected, actual] = [expectedSurface(table, language), surfaceOf[language]()];
    expect([...actual.keys()].filter((id) => !expected.has(id))).toEqual([]);
    expect([...expected.keys()].filter((id) => !actual.has(id))).toEqual([]);
    const wrong = [...expected.values()]
      .map(({ id, types }) => ({ id, types, found: plainType(actual.get(id) ?? "", language) }))
      // What a constructor of Python sets has no declared type.
      .filter(
        ({ types, found }) => types !== undefined && !types.includes(found) && (language !== "python" || found !== ""),
      );
    expect(wrong).toEqual([]);
  },
  timeoutMs,
);

test(
  "sdk surface: the twins of Python have the same names",
  () => {
    const [sync, async] = [pythonSurface("sync"), pythonSurface("async")];
    expect([...sync.keys()].filter((id) => !async.has(id))).toEqual(["Process.poll"]);
    expect([...async.keys()].filter((id) => !sync.has(id))).toEqual([]);
  },
  timeoutMs,
);

test("sdk surface: a spelling of its own has a reason", () => {
  expect(unexplained(table)).toEqual([]);
});

test("sdk surface: every call says how it fails, by codes that exist, and every code is some call's or reserved", () => {
  expect(withoutFailures(table)).toEqual([]);
  const { codes } = parse(readFileSync(path.join(rootDir, "spec/errors.yaml"), "utf8")) as {
    codes: { code: string }[];
  };
  const known = codes.map(({ code }) => code).toSorted();
  expect([...failureCodes(table), ...table.reserved].toSorted()).toEqual(known);
});
