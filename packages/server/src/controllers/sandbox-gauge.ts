import type { Sandbox } from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerOf,
  findCondition,
  labelKeys,
  normalizeCreator,
  refersTo,
  type SandboxCost,
  sandboxClaims,
  sandboxCost,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { Gauge } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";

const labelNames = [
  "namespace",
  "ready_condition",
  "expired",
  "launch_type",
  "sandbox_template",
  "owned_by",
  "created_by",
];

/** Where a registry's gauge reads from at present: the caches of the current term of leadership. */
const sources = new WeakMap<MetricsRegistry, { list: () => readonly Sandbox[] }>();

/** Registers `agent_sandboxes`, counted from the cache at each scrape. */
export function collectSandboxes(registry: MetricsRegistry, list: () => readonly Sandbox[]): void {
  const present = sources.get(registry);
  if (present !== undefined) {
    present.list = list;
    return;
  }
  const source = { list };
  sources.set(registry, source);
  collectCosts(registry, source);
  new Gauge({
    name: "agent_sandboxes",
    help: "Sandboxes by state.",
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const sandbox of source.list()) this.inc(sandboxLabels(sandbox));
    },
  });
}

/** What is known of one Sandbox's cost, as series; undefined: not known. */
const costs: readonly {
  readonly name: string;
  readonly help: string;
  readonly value: (cost: SandboxCost) => number | undefined;
}[] = [
  {
    name: "agent_sandbox_memory_resident_bytes",
    help: "Memory that is charged to a Sandbox, by rung; said in steps of a tenth.",
    value: ({ residentBytes }) => residentBytes,
  },
  {
    name: "agent_sandbox_memory_shared_bytes",
    help: "A Sandbox's proportional part of the pages of files that several map.",
    value: ({ sharedBytes }) => sharedBytes,
  },
  {
    name: "agent_sandbox_memory_saved_bytes",
    help: "Memory of a Sandbox on its node's disk.",
    value: ({ savedBytes }) => savedBytes,
  },
  {
    name: "agent_sandbox_memory_freed_bytes",
    help: "What was resident when a Sandbox fell asleep, less what is now.",
    value: ({ asleepSinceMs, freedBytes }) => (asleepSinceMs === undefined ? undefined : freedBytes),
  },
  {
    name: "agent_sandbox_asleep_since_seconds",
    help: "When a Sandbox that is asleep fell asleep, in seconds since 1970.",
    value: ({ asleepSinceMs }) => (asleepSinceMs === undefined ? undefined : asleepSinceMs / 1000),
  },
];

/** Registers what each Sandbox costs. Labels are its names and its phase: their number is bounded by the Sandboxes. */
function collectCosts(registry: MetricsRegistry, source: { readonly list: () => readonly Sandbox[] }): void {
  for (const { name, help, value } of costs) {
    new Gauge({
      name,
      help,
      labelNames: ["namespace", "sandbox", "rung"],
      registers: [registry],
      collect() {
        this.reset();
        for (const sandbox of source.list()) {
          const cost = sandboxCost(sandbox);
          const amount = value(cost);
          const { namespace = "", name: sandboxName } = sandbox.metadata;
          if (amount !== undefined) this.set({ namespace, sandbox: sandboxName, rung: cost.phase }, amount);
        }
      },
    });
  }
}

/** The label set of one Sandbox. Exported for tests. */
export function sandboxLabels(sandbox: Sandbox): Record<string, string> {
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  const owner = controllerOf(sandbox);
  const owned = [sandboxClaims, sandboxWarmPools].find((kind) => refersTo(owner, kind))?.kind;
  const template = sandbox.metadata.annotations?.[annotationKeys.templateRef] ?? "";
  return {
    namespace: sandbox.metadata.namespace ?? "",
    ready_condition: String(ready?.status === "True"),
    expired: String(ready?.reason === "SandboxExpired"),
    launch_type: sandbox.metadata.labels?.[labelKeys.launchType] === "warm" ? "warm" : "cold",
    sandbox_template: template === "" ? "unknown" : template,
    owned_by: owned ?? "None",
    created_by: normalizeCreator(sandbox.metadata.labels?.[labelKeys.createdBy]),
  };
}
