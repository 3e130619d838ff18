import { describe, expect, test } from "vitest";
import { aMember, at, epochMs, ownedByExtension } from "../testing/builders.ts";
import { WarmQueue } from "./warm-queue.ts";

const pool = "uid-pool";
const ip = (name: string, node: string, born = 0, ready = true) =>
  aMember(name, { ready, node, metadata: { ...aMember(name).metadata, creationTimestamp: at(born) } });

const keys = (queue: WarmQueue): string[] => queue.candidates(pool, epochMs).map(({ key }) => key);

function filled(...members: ReturnType<typeof aMember>[]): { queue: WarmQueue; woken: string[] } {
  const woken: string[] = [];
  const queue = new WarmQueue((claim) => woken.push(claim));
  for (const member of members) queue.observe(member);
  return { queue, woken };
}

describe("WarmQueue", () => {
  test("WarmQueue: R01 a member is handed out once", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"));
    const taken = ["c1", "c2", "c3"].map((claim) => queue.lease(pool, "default/a", claim, epochMs));
    expect(taken).toEqual([true, false, false]);
    expect(keys(queue)).toEqual(["default/b"]);
  });
  test("WarmQueue: R25 a member that is not Ready is offered as such, and its events change that", () => {
    const { queue } = filled(aMember("a", { ready: false }), ip("b", "n2", 9));
    expect(queue.candidates(pool, epochMs)).toMatchObject([
      { key: "default/a", readiness: "pending", node: "", bornMs: epochMs },
      { key: "default/b", readiness: "ready", node: "n2", bornMs: epochMs + 9_000 },
    ]);
    queue.observe(ip("a", "n1"));
    expect(queue.candidates(pool, epochMs)[0]).toMatchObject({ key: "default/a", readiness: "ready", node: "n1" });
  });
  test("WarmQueue: R22 what is deleting, foreign or unowned is no candidate", () => {
    const gone = aMember("a", { metadata: { ...aMember("a").metadata, deletionTimestamp: at(0) } });
    const unowned = aMember("b", { metadata: { ...aMember("b").metadata, ownerReferences: [] } });
    const claimed = aMember("c", {
      metadata: { ...aMember("c").metadata, ownerReferences: [ownedByExtension("SandboxClaim", "x")] },
    });
    const { queue } = filled(gone, unowned, claimed);
    expect(queue.candidates(pool, epochMs)).toEqual([]);
    expect(queue.lease(pool, "default/a", "c", epochMs)).toBe(false);
  });
  test("WarmQueue: R24 a gone member, a claimed one and a gone pool leave nothing behind", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"), ip("c", "n"));
    queue.remove("default/a");
    queue.observe(
      aMember("b", {
        metadata: { ...aMember("b").metadata, ownerReferences: [ownedByExtension("SandboxClaim", "x")] },
      }),
    );
    expect(keys(queue)).toEqual(["default/c"]);
    queue.removePool(pool);
    expect(keys(queue)).toEqual([]);
  });
  test("WarmQueue: N2 a lease hides one member and not the rest", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"));
    queue.lease(pool, "default/a", "c", epochMs);
    expect(keys(queue)).toEqual(["default/b"]);
    queue.release("default/a", "someone else");
    expect(keys(queue)).toEqual(["default/b"]);
    queue.release("default/a", "c");
    expect(keys(queue)).toEqual(["default/a", "default/b"]);
  });
  test("WarmQueue: a lease of a pass that died runs out", () => {
    const { queue } = filled(ip("a", "n"));
    queue.lease(pool, "default/a", "c", epochMs);
    expect(queue.lease(pool, "default/a", "d", epochMs + 59_000)).toBe(false);
    expect(queue.lease(pool, "default/a", "d", epochMs + 60_000)).toBe(true);
  });
  test("WarmQueue: waiters are woken in order, as many as there are members", () => {
    const { queue, woken } = filled(aMember("a", { ready: false }));
    queue.wait(pool, "c1");
    queue.wait(pool, "c2");
    queue.observe(ip("a", "n"));
    expect(woken).toEqual(["c1"]);
    queue.unwait("c1");
    queue.lease(pool, "default/a", "c1", epochMs);
    queue.observe(ip("b", "n"));
    expect(woken).toEqual(["c1", "c2"]);
  });
});
