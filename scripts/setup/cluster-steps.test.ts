import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { rootDir } from "../checkout.ts";

function gvisorOf(module: string): string | undefined {
  const text = readFileSync(path.join(rootDir, module, "go.mod"), "utf8");
  return /^\s*(?:require )?gvisor\.dev\/gvisor (\S+)/m.exec(text)?.[1];
}

test("set-up: the shim of the cluster tests is of the gVisor that runsc is made from", () => {
  expect(gvisorOf("test/cluster/gvisor-shim")).toMatch(/^v\d/);
  expect(gvisorOf("test/cluster/gvisor-shim")).toBe(gvisorOf("native/runsc"));
});
