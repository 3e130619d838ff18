import { readFileSync } from "node:fs";
import type { Sandbox, SandboxPhase } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { judgeSandbox } from "../packages/sdk/src/control/verdict.ts";
import { sleepStateOf } from "../packages/server/src/apiserver/sleep/sleep-state.ts";
import { wakesOnTraffic } from "../packages/server/src/node/network/sandbox-addresses.ts";
import { routeOf } from "../packages/server/src/router/sandboxes/sandbox-route.ts";

interface GoldenCase {
  readonly name: string;
  readonly sandbox: Sandbox;
  readonly expect: SandboxPhase;
}

const golden = new URL("../spec/sandbox-phase.golden.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(golden, "utf8")) as { cases: GoldenCase[] };
const living = cases.filter(({ expect: { phase } }) => phase !== "deleting");

test.each(living)("phase agreement: $name", ({ sandbox, expect: { isTerminal, wakesOnTraffic: wakes, isHeld } }) => {
  const route = routeOf(sandbox)?.state.kind;
  const entry = sleepStateOf(sandbox);
  // All five readers say that it has ended, and none of them waits first.
  expect([
    route === "crash-loop" || route === "finished" || route === "expired",
    entry === "ended",
    judgeSandbox(sandbox).kind === "failed",
  ]).toEqual([isTerminal, isTerminal, isTerminal]);
  expect([route === "asleep", entry === "asleep"]).toEqual([wakes, wakes]);
  expect([route === "held", entry === "held"]).toEqual([isHeld, isHeld]);
  expect(wakes && !wakesOnTraffic(sandbox)).toBe(false);
});
