import { expect, test } from "vitest";
import { EmptyRoot } from "./empty-root.ts";

test("empty root: a runtime that set-up has not brought is an error and not a test that is left out", async () => {
  const lent = [
    { from: "/usr", to: "/opt/there" },
    { from: "/no/such/deno", to: "/opt/deno" },
  ];
  await expect(EmptyRoot.open(lent)).rejects.toThrow("set-up has not brought /no/such/deno");
});
