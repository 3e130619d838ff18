// Records what a real API server answers to every scripted case of the conformance suite into test/conformance/golden.
//
//   node test/cluster/record-golden.ts [group...]
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { httpTransport } from "@agent-sandbox/kube";
import { ApiCall } from "../conformance/api-call.ts";
import { installFixtures } from "../conformance/fixtures.ts";
import { groups } from "../conformance/groups.ts";
import { recording } from "../conformance/scripted.ts";
import { Bench } from "../conformance/suite.ts";
import { openCluster } from "./cluster.ts";

const goldenDir = path.resolve(import.meta.dirname, "../conformance/golden");
const wanted = process.argv.slice(2);
const recorded: Record<string, Record<string, unknown>> = {};
recording.current = (group, title, outcomes) => {
  (recorded[group] ??= {})[title] = outcomes;
};

await using cluster = await openCluster();
const transport = httpTransport(cluster.admin, { protocol: "http1" });
await installFixtures(new ApiCall(transport), "install");
await using bench = new Bench(cluster);
let failed = 0;
for (const group of groups.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
  const results = await Promise.allSettled(group.cases.map((each) => bench.run(each)));
  for (const [index, result] of results.entries()) {
    if (result.status === "fulfilled") continue;
    failed += 1;
    process.stderr.write(`${group.name}: ${group.cases[index]?.title}: ${String(result.reason)}\n`);
  }
}
await transport.close();
mkdirSync(goldenDir, { recursive: true });
for (const [group, outcomes] of Object.entries(recorded)) {
  const sorted = Object.fromEntries(Object.entries(outcomes).sort(([a], [b]) => a.localeCompare(b)));
  writeFileSync(path.join(goldenDir, `${group}.json`), `${JSON.stringify(sorted, undefined, 2)}\n`);
  process.stdout.write(`${group}: ${Object.keys(outcomes).length} scripts recorded\n`);
}
process.exitCode = failed === 0 ? 0 : 1;
