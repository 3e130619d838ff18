import fc from "fast-check";
import { expect, test } from "vitest";
import { nameHash } from "./name-hash.ts";

test.each([
  ["", "811c9dc5"],
  ["a", "e40c292c"],
  ["my-sandbox", "374de8f5"],
  ["test-template-custom", "999443e6"],
  ["sandbox-name", "ab179450"],
  ["my-warm-pool", "034dafb4"],
  ["pool", "91dd7983"],
  ["sandbox-name-with-a-very-long-label-value", "0a9ed996"],
  ["tpl", "9d22159f"],
  ["test-pool", "59733166"],
  ["test-template", "69155462"],
  ["sandboxwarmpool-example", "11ea0998"],
  ["secure-datascience-template", "16901744"],
])("nameHash: %j is %s", (name, hash) => {
  expect(nameHash(name)).toBe(hash);
});

test("nameHash: agrees with arbitrary-precision arithmetic on any text", () => {
  const slow = (text: string) => {
    let hash = 2166136261n;
    for (const byte of new TextEncoder().encode(text)) hash = ((hash ^ BigInt(byte)) * 16777619n) % 2n ** 32n;
    return hash.toString(16).padStart(8, "0");
  };
  fc.assert(fc.property(fc.string({ unit: "grapheme" }), (text) => nameHash(text) === slow(text)));
});
