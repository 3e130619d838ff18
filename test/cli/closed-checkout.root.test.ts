import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import type { EngineRecord } from "@agent-sandbox/kube/engine-record";
import { expect, test } from "vitest";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { programPath } from "../cluster/programs.ts";
import { processTable } from "../node/footprint.ts";
import { TestNamespace } from "../node/namespace.ts";

const roles = ["control", "node", "router"] as const;

/** The user each role of an engine runs as; a role shows itself by its process title. */
function usersByRole(supervisor: number): Record<string, number | undefined> {
  const owner = (role: string): number | undefined => {
    const found = processTable().find(
      ({ pid, command }) => command.startsWith(`agent-sandbox ${role}`) && parentOf(pid) === supervisor,
    );
    return found === undefined ? undefined : statSync(`/proc/${found.pid}`).uid;
  };
  return Object.fromEntries(roles.map((role) => [role, owner(role)]));
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

test("checkout that only root can read: the engine starts, gives root up and still has all it needs", async () => {
  await using place = await TestNamespace.open();
  const work = mkdtempSync("/tmp/as-closed-");
  const checkout = path.join(work, "checkout");
  const dataDir = path.join("/tmp", `${path.basename(work)}-data`);
  mkdirSync(checkout);
  // mkdtemp makes the directory 0700: below it nobody but root gets at any file of the checkout.
  place.must("mount", "--bind", rootDir, checkout);
  const command = (verb: string, ...args: string[]): string =>
    place.must(path.join(checkout, "agent-sandbox"), verb, "--data-dir", dataDir, ...args);
  try {
    const kubeconfig = path.join(work, "kubeconfig");
    command("up", "--detach", "--kubeconfig-out", kubeconfig);
    const record = place.must("cat", layoutOf(dataDir).recordFile);
    const users = usersByRole((JSON.parse(record) as EngineRecord).supervisor.pid);
    expect(Object.values(users)).not.toContain(0);
    expect(Object.values(users)).not.toContain(undefined);
    // kubectl writes this kind in protobuf, whose descriptions the API server takes from a file of the checkout.
    const kubectl = [programPath("kubectl"), "--kubeconfig", kubeconfig];
    expect(place.must(...kubectl, "create", "serviceaccount", "reader")).toBe("serviceaccount/reader created\n");
    expect(command("run", "--", "echo", "hi")).toBe("hi\n");
    // The second start finds everything stored: nothing but its own care makes it wait for the store's writer to load.
    command("down");
    command("up", "--detach");
    expect(command("run", "--", "echo", "again")).toBe("again\n");
  } finally {
    command("down", "--purge");
    place.must("umount", checkout);
    rmSync(work, { recursive: true });
  }
});
