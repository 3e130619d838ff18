import type { StrategyContext } from "../registry/resource-definition.ts";
import type { RequestScope } from "../scope/scope.ts";

/** What the kind's strategy may know about this request. */
export function strategyContext(scope: RequestScope): StrategyContext {
  return {
    nowMs: scope.nowMs,
    uuid: () => scope.server.ids.uuid(),
    subresource: scope.subresource,
    username: scope.user.username,
    kinds: () => scope.server.registry.all(),
    warn: (message) => void scope.warnings.push(message),
  };
}
