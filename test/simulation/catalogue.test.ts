import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const root = path.join(import.meta.dirname, "../..");

const numbered = (prefix: string, last: number, width = 1): string[] =>
  Array.from({ length: last }, (_unused, index) => prefix + String(index + 1).padStart(width, "0"));

/** Every behaviour of the two specifications' test catalogues. */
const ids = [
  ...numbered("C", 6),
  ...numbered("S", 11),
  ...numbered("P", 16),
  ...numbered("V", 4),
  "D1",
  ...numbered("X", 5),
  ...numbered("W", 3),
  ...numbered("K", 9),
  ...["a", "b", "c", "d", "e"].map((letter) => `core N0${letter}`),
  ...numbered("core N", 10),
  ...numbered("R", 61, 2),
  ...numbered("N", 10),
];

/** Behaviours that are tested where the code lives that has them: the file, and a part of the test's title. */
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

const texts = (directory: string): string[] =>
  readdirSync(path.join(root, directory), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".test.ts") && !file.includes("catalogue"))
    .map((file) => readFileSync(path.join(root, directory, file), "utf8"));

/** What titles and the rows of tables begin with: `subject: R01, R02 behaviour`, or a row `R18 behaviour`. */
function namedIds(): Set<string> {
  const found = new Set<string>();
  for (const text of [...texts("packages/server/src/controllers"), ...texts("test/simulation")]) {
    for (const [, list = ""] of text.matchAll(/["`](?:[\w .,-]+: )?((?:(?:core )?[A-Z]\d+[a-e]?(?:, | ))+)/g)) {
      for (const [id] of list.matchAll(/(?:core )?[A-Z]\d+[a-e]?/g)) found.add(id);
    }
  }
  return found;
}

test("catalogue: every behaviour of the specifications has a test that names it", () => {
  const named = namedIds();
  expect(ids.filter((id) => !named.has(id) && elsewhere[id] === undefined)).toEqual([]);
});

test("catalogue: what is tested elsewhere is tested there", () => {
  for (const [file, title] of Object.values(elsewhere)) {
    expect(readFileSync(path.join(root, file), "utf8")).toContain(title);
  }
});

/** The numbers of the reference's known weaknesses: those of the Sandbox, then those of templates, pools and claims. */
const weaknesses = [...numbered("", 42), ...numbered("W", 51, 2)];

const decisions: ReadonlySet<string> = new Set(["kept", "fixed", "option", "not", "address"]);

test("catalogue: every weakness of the reference has a row that says what was decided", () => {
  const rows = [
    ...readFileSync(path.join(root, "docs/compatibility.md"), "utf8").matchAll(/^\| (W?\d+) \| ([^|]+) \| (\w+)/gm),
  ];
  const decided = new Map(rows.map(([, id = "", , decision = ""]) => [id, decision]));
  expect(weaknesses.filter((id) => !decisions.has(decided.get(id) ?? ""))).toEqual([]);
});
