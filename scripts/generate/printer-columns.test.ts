import { expect, test } from "vitest";
import { parsePath } from "./printer-columns.ts";

test.each([
  [".spec.replicas", ["spec", "replicas"]],
  [".status.conditions[?(@.type=='Ready')].status", ["status", "conditions", { type: "Ready" }, "status"]],
])("parsePath: %s", (jsonPath, parts) => {
  expect(parsePath(jsonPath)).toEqual(parts);
});

test("parsePath: a path that the CLI could not follow is refused with the part that it could not read", () => {
  expect(() => parsePath(".spec.containers[0].image")).toThrow("from [0].image on");
});
