import { type Node, nodes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FakeClock } from "../../packages/kube/src/testing/fake-clock.ts";
import { RecordShelf } from "../../packages/server/src/durable/record-shelf.ts";
import { ImageStore } from "../../packages/server/src/node/images/image-store.ts";
import { NodeReporter } from "../../packages/server/src/node/node-status/node-reporter.ts";
import { NodeWorld } from "./node-world.ts";

let world: NodeWorld;
const key = { name: "other-node" };

beforeAll(async () => {
  world = await NodeWorld.start();
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

/** A reporter of a node of its own, on a clock of its own. */
async function reporting(work: (beat: () => Promise<void>) => Promise<void>): Promise<void> {
  const clock = new FakeClock(Date.now());
  const stop = new AbortController();
  const { client, host, dataDir } = world;
  const reporter = new NodeReporter({
    client,
    host,
    clock,
    config: { ...world.config, nodeName: key.name },
    images: new ImageStore({ dataDir, host, clock }),
    shelf: new RecordShelf(dataDir, () => {}),
    architecture: "amd64",
    kubeletPort: 10_250,
    signal: stop.signal,
  });
  await reporter.register();
  const heartbeat = reporter.heartbeat();
  const running = heartbeat.run(stop.signal);
  const beat = async (): Promise<void> => {
    await clock.advance(10_000);
    await heartbeat.queue.drained();
  };
  try {
    await work(beat);
  } finally {
    stop.abort(new Error("the test is over"));
    await running;
  }
}

function conditionOf(node: Node, type: string): string | undefined {
  return node.status?.conditions?.find((condition) => condition.type === type)?.status;
}

test("NodeReporter: what others wrote stays, and what they wrote over ours is put right", async () => {
  await reporting(async (beat) => {
    const others = [
      { type: "NetworkUnavailable", status: "False", reason: "RouteCreated" },
      { type: "Ready", status: "Unknown", reason: "NodeStatusUnknown" },
    ];
    const patch = { type: "strategic", body: { status: { conditions: others } } } as const;
    expect(conditionOf(await world.client.patch(nodes, key, patch, { subresource: "status" }), "Ready")).toBe(
      "Unknown",
    );
    await beat();
    expect(conditionOf(await world.client.get(nodes, key), "Ready")).toBe("True");
    expect(conditionOf(await world.client.get(nodes, key), "NetworkUnavailable")).toBe("False");
  });
});

test("NodeReporter: nothing is written while nothing changed, and a deleted Node comes back", async () => {
  await reporting(async (beat) => {
    const before = (await world.client.get(nodes, key)).metadata.resourceVersion;
    for (let beats = 0; beats < 3; beats++) await beat();
    expect((await world.client.get(nodes, key)).metadata.resourceVersion).toBe(before);
    await world.client.delete(nodes, key);
    await beat();
    expect(conditionOf(await world.client.get(nodes, key), "Ready")).toBe("True");
  });
});
