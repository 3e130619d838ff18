import { httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, describe, test } from "vitest";
import { ApiCall } from "./api-call.ts";
import { installFixtures } from "./fixtures.ts";
import { groups } from "./groups.ts";
import { Bench, type Target } from "./suite.ts";

/** What runs the suite. */
export interface SuiteOptions {
  /** Goes before every title. */
  readonly name: string;
  readonly open: () => Promise<Target>;
  /** Cases that must fail: differences that are known. */
  readonly failing?: ReadonlySet<string>;
  /** Whether our own kinds are there already. */
  readonly ownKinds: "install" | "present";
}

/** Registers one test per case against one server. */
export function registerConformance({ name, open, ownKinds, failing = new Set() }: SuiteOptions): void {
  let target: Target | undefined;
  let bench: Bench | undefined;
  beforeAll(async () => {
    target = await open();
    const transport = httpTransport(target.admin, { protocol: "http1" });
    await installFixtures(new ApiCall(transport), ownKinds);
    await transport.close();
    bench = new Bench(target);
  }, 180_000);
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    await target?.[Symbol.asyncDispose]();
  }, 60_000);
  for (const group of groups) {
    describe.concurrent(`${name}: ${group.name}`, () => {
      for (const each of group.cases) {
        const title = `${group.name}: ${each.title}`;
        const register = failing.has(title) ? test.fails : test;
        register(title, { timeout: 60_000 }, () => (bench as Bench).run(each));
      }
    });
  }
}
