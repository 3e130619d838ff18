import type { Sandbox, SandboxWarmPool } from "@agent-sandbox/api";
import { isReady } from "./member-state.ts";

/** What a rolling update adds to a pass. */
export interface Rollout {
  readonly rolling: boolean;
  /** How many members the pool aims at just now: the replicas, plus the surge while old members are left. */
  readonly target: number;
  readonly deletions: readonly { readonly sandbox: Sandbox; readonly why: "stale" }[];
}

/** Members as the rollout sees them. */
export interface RolloutInput {
  readonly pool: SandboxWarmPool;
  readonly active: readonly Sandbox[];
  readonly stale: readonly Sandbox[];
  readonly desired: number;
}

/** As for Deployments: a quarter of the members may be missing, and a quarter may be surplus. */
const boundDefault = "25%";

/** Replaces stale members within the bounds; every other strategy changes nothing here. */
export function planRollout({ pool, active, stale, desired }: RolloutInput): Rollout {
  const strategy = pool.spec.updateStrategy;
  const present = new Set(active.map((sandbox) => sandbox.metadata.name));
  const old = stale.filter((sandbox) => present.has(sandbox.metadata.name));
  if (strategy?.type !== "RollingUpdate" || old.length === 0) return { rolling: false, target: desired, deletions: [] };
  const surge = resolveBound(strategy.rollingUpdate?.maxSurge ?? boundDefault, desired, Math.ceil);
  const missing = resolveBound(strategy.rollingUpdate?.maxUnavailable ?? boundDefault, desired, Math.floor);
  // With both bounds 0 no member could ever be replaced.
  const unavailableMax = surge === 0 && missing === 0 ? 1 : missing;
  const ready = active.filter(isReady);
  const spare = Math.max(0, ready.length - (desired - unavailableMax));
  const idle = old.filter((sandbox) => !isReady(sandbox));
  const serving = old.filter(isReady).slice(0, spare);
  return {
    rolling: true,
    target: desired + surge,
    deletions: [...idle, ...serving].map((sandbox) => ({ sandbox, why: "stale" })),
  };
}

/** A count, or a percentage of the replicas. A text that is neither counts as the default. */
function resolveBound(bound: number | string, desired: number, round: (value: number) => number): number {
  if (typeof bound === "number") return Math.max(0, Math.floor(bound));
  const percent = /^(\d+)%$/.exec(bound)?.[1];
  if (percent !== undefined) return round((Number(percent) / 100) * desired);
  return /^\d+$/.test(bound) ? Number(bound) : resolveBound(boundDefault, desired, round);
}
