import { mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { nodes } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { isReady, NodeWorld } from "./node-world.ts";

const sleeper = { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] };

test.each([
  ["empty", ""],
  ["torn", '{"version":1,"uid":"'],
  ["another thing", "null"],
])(
  "node agent: records that are %s are set aside and named on the Node; pods run all the same",
  async (_what, text) => {
    await using world = await NodeWorld.start();
    await world.createPod("hit", sleeper);
    await world.createPod("beside", sleeper);
    const { metadata } = await world.podWhere("hit", isReady);
    const beside = await world.podWhere("beside", isReady);
    await world.agent?.stop();
    const record = path.join(world.dataDir, "sandboxes", metadata.uid ?? "", "record.json");
    const index = path.join(world.dataDir, "images", "index.json");
    await mkdir(path.dirname(index), { recursive: true });
    for (const file of [record, index]) await writeFile(file, text);
    world.fake.badRecords = ["containers.x.record.json.bad-1"];

    await world.startAgent();
    await world.agent?.idle();
    await world.podWhere("hit", isReady);
    expect((await world.podWhere("beside", isReady)).status?.containerStatuses).toEqual(
      beside.status?.containerStatuses,
    );
    const kept = await readdir(path.join(world.dataDir, "bad"));
    expect(kept.map((name) => name.replace(/\.bad-\d+$/, "")).toSorted()).toEqual([
      "images.index.json",
      `sandboxes.${metadata.uid}.record.json`,
    ]);
    const { status } = await world.client.get(nodes, { name: "node-a" });
    const condition = status?.conditions?.find(({ type }) => type === "RecordsReadable");
    expect(condition).toMatchObject({ status: "False", reason: "RecordsSetAside" });
    for (const name of ["containers.x.record.json", ...kept]) expect(condition?.message).toContain(name);
  },
);
