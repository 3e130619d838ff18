import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { assertReachable } from "../../packages/server/src/main/data-dir.ts";
import { EngineError } from "../../packages/server/src/main/engine-error.ts";
import { ensureRoleUser } from "../../packages/server/src/main/role-user.ts";
import { rootDir } from "../../scripts/checkout.ts";

// mkdtemp makes the directory 0700, as `mktemp -d` does.
const closed = mkdtempSync("/tmp/as-closed-parent-");
const dataDir = path.join(closed, "data");

afterAll(() => rmSync(closed, { recursive: true }));

test.each([
  { verb: "up", flags: [] },
  { verb: "up --detach", flags: ["--detach"] },
])("$verb: a data directory that the engine's users cannot reach is refused, and what to do is said", ({ flags }) => {
  // This address is taken, but the refusal comes before.
  const argv = ["up", ...flags, "--data-dir", dataDir, "--listen", "127.0.0.1:1"];
  const { status, stderr } = spawnSync(path.join(rootDir, "agent-sandbox"), argv, { encoding: "utf8" });
  expect(status).not.toBe(0);
  expect(stderr).toContain(`cannot enter ${closed} (mode 0700), which is above the data directory ${dataDir}`);
  expect(stderr).toContain(`chmod o+x ${closed}`);
});

test("assertReachable: only the role's user counts, by whatever right it gets through", async () => {
  const user = await ensureRoleUser("router");
  mkdirSync(dataDir, { recursive: true });
  expect(() => assertReachable(dataDir, user)).toThrow(EngineError);
  chownSync(closed, 0, user.gid);
  chmodSync(closed, 0o710);
  expect(() => assertReachable(dataDir, user)).not.toThrow();
  chownSync(closed, 0, 0);
  chmodSync(closed, 0o701);
  expect(() => assertReachable(dataDir, user)).not.toThrow();
});
