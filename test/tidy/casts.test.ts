import { expect, test } from "vitest";
import { findCasts } from "./casts.ts";

// In two pieces, so that this file holds none.
const cast = `const pod = object as ${"unknown"} as Pod;`;

test("findCasts: refuses a cast in a file that the table does not name, with or without a reason", () => {
  expect(findCasts("packages/api/src/a.ts", `// A reason.\n${cast}`)).toHaveLength(1);
  expect(findCasts("packages/api/src/a.ts", cast)).toHaveLength(2);
});

test("findCasts: refuses a file that has fewer casts than the table says", () => {
  expect(findCasts("packages/api/src/meta.ts", `// A reason.\n${cast}`)).toHaveLength(1);
});

test("findCasts: asks for a reason in the product and for none in tests", () => {
  expect(findCasts("packages/api/src/meta.ts", `// One.\n${cast}\n// Two.\n${cast}`)).toEqual([]);
  expect(findCasts("packages/api/src/meta.ts", `// One.\n${cast}\n${cast}`)).toHaveLength(1);
  expect(findCasts("packages/kube/src/testing/part-of.ts", cast)).toEqual([]);
});
