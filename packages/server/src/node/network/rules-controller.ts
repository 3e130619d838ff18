import type { KubeObject } from "@agent-sandbox/api";
import {
  type BackoffOptions,
  type Clock,
  type Controller,
  type ControllerTelemetry,
  defineController,
  done,
  type InformerHandler,
} from "@agent-sandbox/kube";
import type { RuleKeeper } from "./rule-keeper.ts";

/** How soon rules that the host refused are tried again: a helper that was killed is back within this. */
const backoff: BackoffOptions = { firstMs: 1_000, maxMs: 1_000 };

/** The one key: the rule set is one. */
const key = "rules";

/** What rules follow. */
export interface RulesOptions {
  readonly rules: Pick<RuleKeeper, "apply">;
  readonly clock: Clock;
  readonly telemetry: ControllerTelemetry;
  /** Their objects say what is allowed to whom. */
  readonly sources: readonly { addHandler(handler: InformerHandler<KubeObject>): void }[];
}

/** Applies the rules after every change of their sources, and again until they are in force: a policy that was accepted must not wait for the next change. */
export function rulesController({ rules, clock, telemetry, sources }: RulesOptions): Controller {
  return defineController({
    name: "node-rules",
    clock,
    telemetry,
    backoff,
    observe: (queue) => {
      const add = (): void => queue.add(key);
      // Also what the first lists brought: it may have changed since the rules were applied at start. Rules that are in force already cost no verb.
      for (const source of sources) source.addHandler({ onAdd: add, onUpdate: add, onDelete: add });
    },
    reconcile: async () => {
      await rules.apply();
      return done;
    },
  });
}
