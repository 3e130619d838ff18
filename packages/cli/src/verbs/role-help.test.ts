import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";

test.each(["controller", "router", "node"])(
  "agent-sandbox %s --help: prints the role's flags and ends with 0",
  (role) => {
    const main = path.join(import.meta.dirname, "../main.ts");
    const args = ["--disable-warning=ExperimentalWarning", main, role, "--help"];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(new RegExp(`^Usage: agent-sandbox ${role} \\[flags\\]`));
  },
);
