import { describe, expect, test } from "vitest";
import { aMember, at, epochMs, ownedByExtension } from "../testing/builders.ts";
import { WarmQueue } from "./warm-queue.ts";

const pool = "uid-pool";
const ip = (name: string, node: string, born = 0, ready = true) =>
  aMember(name, { ready, node, metadata: { ...aMember(name).metadata, creationTimestamp: at(born) } });

function filled(...members: ReturnType<typeof aMember>[]): { queue: WarmQueue; woken: string[] } {
  const woken: string[] = [];
  const queue = new WarmQueue((claim) => woken.push(claim));
  for (const member of members) queue.observe(member);
  return { queue, woken };
}

describe("WarmQueue", () => {
  test("WarmQueue: R01 a member is handed out once", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"));
    const taken = ["c1", "c2", "c3"].map((claim) => queue.lease(pool, claim, "ready", epochMs));
    expect(taken).toEqual(["default/a", "default/b", undefined]);
  });
  test("WarmQueue: R25 the fullest node first, then the oldest", () => {
    const { queue } = filled(ip("a", "n1", 0), ip("b", "n2", 5), ip("c", "n2", 3), ip("d", "n2", 4));
    expect(["1", "2", "3", "4"].map((claim) => queue.lease(pool, claim, "ready", epochMs))).toEqual([
      "default/c",
      "default/d",
      "default/a",
      "default/b",
    ]);
  });
  test("WarmQueue: R25 an oldest that is not Ready is passed over and stays", () => {
    const { queue } = filled(aMember("old", { ready: false }), ip("new", "n", 9));
    expect(queue.lease(pool, "c", "ready", epochMs)).toBe("default/new");
    expect(queue.offer(pool, epochMs)).toEqual({ ready: 0, networked: 0, pending: 1 });
  });
  test("WarmQueue: R22 what is deleting, foreign or unowned is no candidate", () => {
    const gone = aMember("a", { metadata: { ...aMember("a").metadata, deletionTimestamp: at(0) } });
    const unowned = aMember("b", { metadata: { ...aMember("b").metadata, ownerReferences: [] } });
    const claimed = aMember("c", {
      metadata: { ...aMember("c").metadata, ownerReferences: [ownedByExtension("SandboxClaim", "x")] },
    });
    const { queue } = filled(gone, unowned, claimed);
    expect(queue.lease(pool, "c", "ready", epochMs)).toBeUndefined();
  });
  test("WarmQueue: R24 a gone member, a claimed one and a gone pool leave nothing behind", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"), ip("c", "n"));
    queue.remove("default/a");
    queue.observe(
      aMember("b", {
        metadata: { ...aMember("b").metadata, ownerReferences: [ownedByExtension("SandboxClaim", "x")] },
      }),
    );
    expect(queue.offer(pool, epochMs).ready).toBe(1);
    queue.removePool(pool);
    expect(queue.offer(pool, epochMs).ready).toBe(0);
  });
  test("WarmQueue: N2 a lease hides one member and not the rest", () => {
    const { queue } = filled(ip("a", "n"), ip("b", "n"));
    queue.lease(pool, "c", "ready", epochMs);
    expect(queue.offer(pool, epochMs).ready).toBe(1);
    queue.release("default/a", "someone else");
    expect(queue.offer(pool, epochMs).ready).toBe(1);
    queue.release("default/a", "c");
    expect(queue.offer(pool, epochMs).ready).toBe(2);
  });
  test("WarmQueue: a lease of a pass that died runs out", () => {
    const { queue } = filled(ip("a", "n"));
    queue.lease(pool, "c", "ready", epochMs);
    expect(queue.lease(pool, "d", "ready", epochMs + 59_000)).toBeUndefined();
    expect(queue.lease(pool, "d", "ready", epochMs + 60_000)).toBe("default/a");
  });
  test("WarmQueue: waiters are woken in order, as many as there are members", () => {
    const { queue, woken } = filled(aMember("a", { ready: false }));
    queue.wait(pool, "c1");
    queue.wait(pool, "c2");
    queue.observe(ip("a", "n"));
    expect(woken).toEqual(["c1"]);
    queue.unwait("c1");
    queue.lease(pool, "c1", "ready", epochMs);
    queue.observe(ip("b", "n"));
    expect(woken).toEqual(["c1", "c2"]);
  });
});
