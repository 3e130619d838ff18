import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const root = path.join(import.meta.dirname, "../..");

/** Behaviours whose tests lie with code that has none of these ids in its titles: the file, and a part of a title. */
const elsewhere: Readonly<Record<string, readonly [string, string]>> = {
  C1: ["packages/api/src/conversion.test.ts", "sandboxToV1beta1: replicas"],
  C2: [
    "packages/api/src/conversion.test.ts",
    "sandboxToV1beta1: the source is not touched and an old state is neither kept nor nested",
  ],
  C3: ["packages/api/src/conversion.test.ts", "conversion: a stored object loses nothing on its way through v1alpha1"],
  C4: ["packages/api/src/conversion.test.ts", "sandboxToV1alpha1: "],
  K6: ["packages/api/src/name-hash.test.ts", "nameHash: agrees with arbitrary-precision arithmetic on any text"],
  N9: ["test/simulation/seeds.test.ts", "simulation: every invariant holds under"],
  N10: ["packages/api/src/conversion.test.ts", "conversion: a stored object loses nothing on its way through v1alpha1"],
};

const read = (file: string): string => readFileSync(path.join(root, file), "utf8");

/** The ids of the catalogue's tables. */
function catalogued(): string[] {
  return [...read("spec/behaviours.md").matchAll(/^\| ((?:core )?[A-Z]\d+[a-e]?) \|/gm)].map(([, id = ""]) => id);
}

const texts = (directory: string): string[] =>
  readdirSync(path.join(root, directory), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".test.ts") && !file.includes("catalogue"))
    .map((file) => read(path.join(directory, file)));

/** What titles and rows of tables begin with (`subject: R01, R02 behaviour`, `R18 behaviour`) or end with (`behaviour (G7)`). */
function namedIds(): Set<string> {
  const found = new Set<string>();
  const folders = ["packages/server/src/controllers", "packages/server/src/router", "test/simulation", "test/router"];
  for (const text of [...folders, "test/deploy"].flatMap(texts)) {
    for (const [, list = ""] of text.matchAll(/["`](?:[\w .,-]+: )?((?:(?:core )?[A-Z]\d+[a-e]?(?:, | ))+)/g)) {
      for (const [id] of list.matchAll(/(?:core )?[A-Z]\d+[a-e]?/g)) found.add(id);
    }
    for (const [, id = ""] of text.matchAll(/^ *test(?:\.each)?\(\s*"[^"]* \(([A-Z]\d+)\)"/gm)) found.add(id);
  }
  return found;
}

test("catalogue: every behaviour of spec/behaviours.md has a test that names it", () => {
  const named = namedIds();
  expect(catalogued().length).toBeGreaterThan(100);
  expect(catalogued().filter((id) => !named.has(id) && elsewhere[id] === undefined)).toEqual([]);
});

test("catalogue: every id in a test's title is in spec/behaviours.md", () => {
  const known = new Set(catalogued());
  expect([...namedIds()].filter((id) => !known.has(id))).toEqual([]);
});

test("catalogue: a behaviour that is tested elsewhere is tested there", () => {
  const missing = Object.entries(elsewhere).filter(([, [file, title]]) => !read(file).includes(title));
  expect(missing).toEqual([]);
});

const numbered = (prefix: string, last: number, width = 1): string[] =>
  Array.from({ length: last }, (_unused, index) => prefix + String(index + 1).padStart(width, "0"));

/** The numbers of the reference's known weaknesses: those of the Sandbox, then those of templates, pools and claims. */
const weaknesses = [...numbered("", 42), ...numbered("W", 51, 2)];

const decisions: ReadonlySet<string> = new Set(["kept", "fixed", "option", "not", "address"]);

test("catalogue: every weakness of the reference has a row that says what was decided", () => {
  const rows = [...read("docs/compatibility.md").matchAll(/^\| (W?\d+) \| ([^|]+) \| (\w+)/gm)];
  const decided = new Map(rows.map(([, id = "", , decision = ""]) => [id, decision]));
  expect(weaknesses.filter((id) => !decisions.has(decided.get(id) ?? ""))).toEqual([]);
});
