import type { Namespace, NetworkPolicy } from "@agent-sandbox/api";
import type { RuleProtocol } from "../host/ruleset.ts";

/** A sandbox with an address, awake or asleep, as policies see it. */
export interface Endpoint {
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly address: string;
  /** Absent: asleep. */
  readonly slot?: number;
  /** Awake, but connections to it wait. */
  readonly isHeld?: boolean;
  /** Container ports by name and protocol, for policies that name ports. */
  readonly ports: readonly { readonly name: string; readonly protocol: RuleProtocol; readonly port: number }[];
}

/** Everything rules follow from. */
export interface RuleSources {
  readonly endpoints: readonly Endpoint[];
  readonly policies: readonly NetworkPolicy[];
  readonly namespaces: readonly Namespace[];
}
