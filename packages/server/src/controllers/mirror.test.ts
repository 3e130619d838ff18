import { expired, type Pod, pods } from "@agent-sandbox/api";
import { type Client, FakeClock, Informer } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { partOf } from "../../../kube/src/testing/part-of.ts";
import { Mirror } from "./mirror.ts";
import { aPod } from "./testing/builders.ts";

const versioned = (name: string, resourceVersion: string): Pod => {
  const pod = aPod({ name });
  return { ...pod, metadata: { ...pod.metadata, uid: `uid-${name}`, resourceVersion } };
};

/** A server that answers one list after another and ends each watch when told, with 410. */
function open(lists: { items: Pod[]; version: string }[]) {
  let end = Promise.withResolvers<void>();
  const client = partOf<Client>({
    list: async () => {
      const { items = [], version = "" } = lists.shift() ?? {};
      return { items: structuredClone(items), metadata: { resourceVersion: version } };
    },
    async *watch() {
      await end.promise;
      end = Promise.withResolvers<void>();
      yield { type: "ERROR", object: expired("the version is gone").toStatus() };
    },
  });
  const clock = new FakeClock();
  const stop = new AbortController();
  const mirror = new Mirror(new Informer<Pod>({ client, resource: pods, clock }));
  const told: string[] = [];
  mirror.addHandler({ onDelete: ({ metadata }) => void told.push(metadata.name) });
  const running = mirror.informer.run(stop.signal);
  return {
    mirror,
    told,
    gap: async (): Promise<void> => {
      end.resolve();
      await clock.settled();
    },
    settled: () => clock.settled(),
    async [Symbol.asyncDispose](): Promise<void> {
      stop.abort(new Error("over"));
      end.resolve();
      await running;
    },
  };
}

describe("Mirror", () => {
  test("Mirror: what was made and taken away in a gap of the watch is told of", async () => {
    await using world = open([
      { items: [], version: "1" },
      { items: [], version: "9" },
    ]);
    await world.settled();
    world.mirror.wrote(versioned("a", "5"));
    expect(world.mirror.get("default/a")?.metadata.name).toBe("a");
    await world.gap();
    expect(world.told).toEqual(["a"]);
    expect(world.mirror.get("default/a")).toBeUndefined();
  });

  test("Mirror: what was made and told to go before the watch showed it is on its way out until it is gone", async () => {
    await using world = open([
      { items: [], version: "1" },
      { items: [], version: "9" },
    ]);
    await world.settled();
    const made = world.mirror.wrote(versioned("a", "5"));
    world.mirror.deleted(made, "2026-01-01T00:00:00Z");
    expect(world.mirror.get("default/a")?.metadata.deletionTimestamp).toBe("2026-01-01T00:00:00Z");
    await world.gap();
    expect(world.told).toEqual(["a"]);
    expect(world.mirror.get("default/a")).toBeUndefined();
  });

  test("Mirror: what was made, and is said to be gone before the watch showed it, is reported once the gap is filled", async () => {
    await using world = open([
      { items: [], version: "1" },
      { items: [], version: "9" },
    ]);
    await world.settled();
    world.mirror.gone(world.mirror.wrote(versioned("a", "5")));
    expect(world.mirror.get("default/a")).toBeUndefined();
    await world.gap();
    expect(world.told).toEqual(["a"]);
  });

  test("Mirror: what was made after the list that fills the gap stays", async () => {
    await using world = open([
      { items: [], version: "1" },
      { items: [versioned("b", "6")], version: "9" },
    ]);
    await world.settled();
    world.mirror.wrote(versioned("a", "12"));
    world.mirror.wrote(versioned("b", "6"));
    await world.gap();
    expect(world.told).toEqual([]);
    expect(world.mirror.get("default/a")?.metadata.resourceVersion).toBe("12");
    expect(world.mirror.get("default/b")?.metadata.resourceVersion).toBe("6");
  });
});
