import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { sandboxCost } from "@agent-sandbox/api/memory-use";
import { formatBytes } from "../bytes.ts";
import { stateWord } from "./columns.ts";

/** What all sandboxes of an engine cost together. */
export interface SandboxCosts {
  /** How many there are in each state. */
  readonly states: Readonly<Record<string, number>>;
  readonly residentBytes: number;
  readonly sharedBytes: number;
  readonly savedBytes: number;
  /** What the sleepers had resident when they fell asleep, less what they have now. */
  readonly freedBytes: number;
}

/** Adds up what is known. */
export function sumCosts(sandboxes: readonly Sandbox[]): SandboxCosts {
  const states: Record<string, number> = {};
  const sum = { residentBytes: 0, sharedBytes: 0, savedBytes: 0, freedBytes: 0 };
  for (const sandbox of sandboxes) {
    const state = stateWord(sandbox);
    states[state] = (states[state] ?? 0) + 1;
    const cost = sandboxCost(sandbox);
    sum.residentBytes += cost.residentBytes ?? 0;
    sum.sharedBytes += cost.sharedBytes ?? 0;
    sum.savedBytes += cost.savedBytes ?? 0;
    sum.freedBytes += cost.freedBytes;
  }
  return { states, ...sum };
}

/** The sums as lines of `status`. */
export function costLines({ states, residentBytes, sharedBytes, savedBytes, freedBytes }: SandboxCosts): string[] {
  const counts = Object.entries(states).map(([state, count]) => `${count} ${state}`);
  const parts = [
    `${formatBytes(residentBytes)} resident`,
    `${formatBytes(sharedBytes)} shared`,
    `${formatBytes(savedBytes)} saved on disk`,
    `${formatBytes(freedBytes)} freed by sleep`,
  ];
  return [
    `sandboxes   ${counts.length === 0 ? "none" : counts.toSorted().join(", ")}`,
    `memory      ${parts.join(", ")}`,
  ];
}
