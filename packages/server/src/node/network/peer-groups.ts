import { createHash } from "node:crypto";
import type { NetworkPolicy, NetworkPolicyPeer } from "@agent-sandbox/api";
import type { RuleGroup, RuleProtocol } from "../host/ruleset.ts";
import { matchesSelector } from "./label-selector.ts";
import type { Endpoint, RuleSources } from "./rule-sources.ts";

/**
 * The sandboxes that policies' peers select, each selection as one group. A group's id follows from the selection alone and never from its members:
 * a sandbox that comes or goes changes members, and no rule of those who may talk to it.
 */
export class PeerGroups {
  readonly #sources: RuleSources;
  readonly #groups = new Map<string, RuleGroup>();
  readonly #selected = new Map<string, readonly Endpoint[]>();

  constructor(sources: RuleSources) {
    this.#sources = sources;
  }

  /** The group of a peer of a policy. */
  of(policy: NetworkPolicy, peer: NetworkPolicyPeer): string {
    return this.#add(idOf(scopeOf(policy, peer)), this.#select(policy, peer));
  }

  /** The groups of those of a peer, or of all sandboxes, that have a port of a name, by its number. */
  byPort(
    policy: NetworkPolicy,
    peer: NetworkPolicyPeer | undefined,
    { name, protocol }: { readonly name: string; readonly protocol: RuleProtocol },
  ): readonly { readonly group: string; readonly port: number }[] {
    const endpoints = peer === undefined ? this.#sources.endpoints : this.#select(policy, peer);
    const byNumber = new Map<number, Endpoint[]>();
    for (const endpoint of endpoints)
      for (const port of new Set(namedPorts(endpoint, name, protocol)))
        byNumber.set(port, [...(byNumber.get(port) ?? []), endpoint]);
    const scope = peer === undefined ? [] : scopeOf(policy, peer);
    return [...byNumber]
      .toSorted(([a], [b]) => a - b)
      .map(([port, members]) => ({ group: this.#add(idOf([...scope, name, protocol, port]), members), port }));
  }

  /** Every group that was asked for. */
  list(): RuleGroup[] {
    return [...this.#groups.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  #add(id: string, members: readonly Endpoint[]): string {
    if (!this.#groups.has(id)) this.#groups.set(id, { id, addresses: members.map(({ address }) => address) });
    return id;
  }

  #select(policy: NetworkPolicy, peer: NetworkPolicyPeer): readonly Endpoint[] {
    const id = idOf(scopeOf(policy, peer));
    const known = this.#selected.get(id) ?? selectEndpoints(policy, peer, this.#sources);
    this.#selected.set(id, known);
    return known;
  }
}

/** The numbers that a sandbox has for a port's name. */
export function namedPorts(endpoint: Endpoint, name: string, protocol: RuleProtocol): number[] {
  return endpoint.ports.filter((port) => port.name === name && port.protocol === protocol).map(({ port }) => port);
}

/** What a selection depends on. */
function scopeOf(policy: NetworkPolicy, { namespaceSelector, podSelector }: NetworkPolicyPeer): readonly unknown[] {
  return [policy.metadata.namespace ?? "", namespaceSelector ?? null, podSelector ?? null];
}

/** Half of a SHA-256: no two selections share it, also where an attacker writes both. */
function idOf(parts: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 32);
}

function selectEndpoints(
  policy: NetworkPolicy,
  { namespaceSelector, podSelector }: NetworkPolicyPeer,
  { endpoints, namespaces }: RuleSources,
): readonly Endpoint[] {
  const allowed =
    namespaceSelector === undefined
      ? new Set([policy.metadata.namespace])
      : new Set(
          namespaces
            .filter(({ metadata: { name, labels } }) =>
              matchesSelector(namespaceSelector, { ...labels, "kubernetes.io/metadata.name": name }),
            )
            .map(({ metadata }) => metadata.name),
        );
  return endpoints.filter(
    ({ namespace, labels }) =>
      allowed.has(namespace) && (podSelector === undefined || matchesSelector(podSelector, labels)),
  );
}
