import { httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiCall } from "./api-call.ts";
import { type EmbeddedTarget, openEmbeddedTarget } from "./embedded-target.ts";
import { installFixtures } from "./fixtures.ts";
import { groups } from "./groups.ts";
import { knownDifferences } from "./known-differences.ts";
import { Bench } from "./suite.ts";

const known = new Set(knownDifferences.flatMap(({ titles }) => titles));
let target: EmbeddedTarget | undefined;
let bench: Bench | undefined;
beforeAll(async () => {
  target = await openEmbeddedTarget();
  const transport = httpTransport(target.admin, { protocol: "http1" });
  await installFixtures(new ApiCall(transport), "present");
  await transport.close();
  bench = new Bench(target);
}, 60_000);
afterAll(async () => {
  await bench?.[Symbol.asyncDispose]();
  await target?.[Symbol.asyncDispose]();
}, 60_000);

test.each(groups)("conformance: a server that is wrong in $name is found out", { timeout: 60_000 }, async (group) => {
  const cases = group.cases.filter(({ title }) => !known.has(`${group.name}: ${title}`));
  for (const each of cases) {
    const isCaught = await (bench as Bench).run(each, group.breakage).then(
      () => false,
      () => true,
    );
    if (isCaught) return;
  }
  expect.fail(`no case of ${group.name} notices its fault`);
});
