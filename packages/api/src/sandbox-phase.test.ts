import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Sandbox } from "./kinds.gen.ts";
import { type SandboxPhase, type SandboxPhaseName, sandboxPhase } from "./sandbox-phase.ts";

interface GoldenCase {
  readonly name: string;
  readonly sandbox: Sandbox;
  readonly expect: SandboxPhase;
}

const golden = new URL("../../../spec/sandbox-phase.golden.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(golden, "utf8")) as { cases: GoldenCase[] };

test.each(cases)("sandboxPhase: $name", ({ sandbox, expect: wanted }) => {
  expect(sandboxPhase(sandbox)).toEqual(wanted);
});

test("invariant one-phase: the table that every language follows has every phase", () => {
  const all: Record<SandboxPhaseName, true> = {
    starting: true,
    ready: true,
    suspending: true,
    suspended: true,
    frozen: true,
    hibernated: true,
    archived: true,
    restoring: true,
    "restore-failed": true,
    "crash-loop": true,
    finished: true,
    failed: true,
    expired: true,
    deleting: true,
  };
  expect([...new Set(cases.map((each) => each.expect.phase))].sort()).toEqual(Object.keys(all).sort());
});
