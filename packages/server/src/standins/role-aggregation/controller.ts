import {
  type ClusterRole,
  clusterRoles,
  ignore,
  labelSelectorOf,
  matchesLabels,
  type PolicyRule,
  semanticEqual,
} from "@agent-sandbox/api";
import { type Controller, defineController, done, Informer } from "@agent-sandbox/kube";
import type { RunningCache } from "../caches.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";

/** The rules of every role that the aggregation rule selects, without doubles, in order of name; undefined: not an aggregated role. Exported for tests. */
export function planAggregation(role: ClusterRole, all: readonly ClusterRole[]): PolicyRule[] | undefined {
  if (role.aggregationRule === undefined) return undefined;
  const selectors = (role.aggregationRule.clusterRoleSelectors ?? []).map((selector) => labelSelectorOf(selector));
  const chosen = all
    .filter(({ metadata }) => metadata.name !== role.metadata.name)
    .filter(({ metadata }) => selectors.some((selector) => matchesLabels(selector, metadata.labels ?? {})))
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  const unique = new Map(chosen.flatMap(({ rules = [] }) => rules).map((rule) => [JSON.stringify(rule), rule]));
  return [...unique.values()];
}

/** Writes the collected rules into aggregated ClusterRoles. Keys are role names. */
export function roleAggregation(context: StandinContext): Controller & { readonly caches: readonly RunningCache[] } {
  const { client, clock } = context;
  const roles = new Informer<ClusterRole>({ client, clock, resource: clusterRoles });
  const standin = defineController({
    name: "role-aggregation",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [roles],
    observe: (queue) => {
      const wake = () => {
        for (const role of roles.list()) if (role.aggregationRule !== undefined) queue.add(role.metadata.name);
      };
      roles.addHandler({ onAdd: wake, onUpdate: wake, onDelete: wake });
    },
    reconcile: async (name, signal) => {
      const role = roles.get(name);
      const rules = role === undefined ? undefined : planAggregation(role, roles.list());
      if (role === undefined || rules === undefined || semanticEqual(rules, role.rules ?? [])) return done;
      await client.update(clusterRoles, { ...role, rules }, { signal }).catch(ignore("NotFound"));
      return { kind: "done", actions: 1 };
    },
  });
  return { ...standin, caches: [roles] };
}
