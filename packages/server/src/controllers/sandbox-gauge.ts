import type { Sandbox } from "@agent-sandbox/api";
import {
  controllerOf,
  findCondition,
  normalizeCreator,
  refersTo,
  sandboxClaims,
  sandboxWarmPools,
} from "@agent-sandbox/api";
import { Gauge } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";
import { createdByLabel, launchTypeLabel, templateRefAnnotation } from "./well-known.ts";

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

/** The label set of one Sandbox. Exported for tests. */
export function sandboxLabels(sandbox: Sandbox): Record<string, string> {
  const ready = findCondition(sandbox.status?.conditions, "Ready");
  const owner = controllerOf(sandbox);
  const owned = [sandboxClaims, sandboxWarmPools].find((kind) => refersTo(owner, kind))?.kind;
  const template = sandbox.metadata.annotations?.[templateRefAnnotation] ?? "";
  return {
    namespace: sandbox.metadata.namespace ?? "",
    ready_condition: String(ready?.status === "True"),
    expired: String(ready?.reason === "SandboxExpired"),
    launch_type: sandbox.metadata.labels?.[launchTypeLabel] === "warm" ? "warm" : "cold",
    sandbox_template: template === "" ? "unknown" : template,
    owned_by: owned ?? "None",
    created_by: normalizeCreator(sandbox.metadata.labels?.[createdByLabel]),
  };
}
