import type { IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, Pod } from "@agent-sandbox/api";
import type { AllowRule, EndpointRules, RuleBlock, RulePort, RuleProtocol, RuleSet } from "../host/ruleset.ts";
import { isReadable, matchesSelector } from "./label-selector.ts";
import { namedPorts, PeerGroups } from "./peer-groups.ts";
import type { Endpoint, RuleSources } from "./rule-sources.ts";

/** Ranges that are never the public internet; a sandbox without a policy reaches none of them. */
const privateRanges = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/4",
  "240.0.0.0/4",
];

/** What a sandbox may reach when no policy speaks of its egress: the public internet. */
const defaultEgress: AllowRule = { blocks: [{ cidr: "0.0.0.0/0", except: privateRanges }] };

/** DNS on the gateway, for every sandbox: also where a template replaces the resolvers, names of sandboxes must resolve. */
const gatewayPorts: readonly RulePort[] = [
  { protocol: "UDP", port: 53 },
  { protocol: "TCP", port: 53 },
];

/** The whole rule set, in an order that depends on nothing but the sources. */
export function compileRules(sources: RuleSources): RuleSet {
  const endpoints: EndpointRules[] = [];
  const sleeping: RuleSet["sleeping"][number][] = [];
  const sorted = sources.endpoints.toSorted((a, b) => (a.address < b.address ? -1 : a.address > b.address ? 1 : 0));
  const policies = sources.policies.map(closedIfUnreadable);
  const peers = new PeerGroups({ ...sources, endpoints: sorted });
  for (const endpoint of sorted) {
    const selecting = policies.filter((policy) => selects(policy, endpoint));
    const ingress = compileIngress(endpoint, selecting, peers);
    if (endpoint.slot === undefined) sleeping.push({ address: endpoint.address, ingress });
    else
      endpoints.push({
        slot: endpoint.slot,
        address: endpoint.address,
        ...(endpoint.isHeld === true && { held: true as const }),
        ingress,
        egress: compileEgress(selecting, peers),
      });
  }
  return { endpoints, gatewayPorts, sleeping, groups: peers.list() };
}

/** The endpoint of a running pod. */
export function podEndpoint(
  pod: Pod,
  { address, slot }: { readonly address: string; readonly slot: number },
): Endpoint {
  const containers = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const ports = containers.flatMap((container) =>
    (container.ports ?? []).flatMap(({ name, protocol, containerPort }) =>
      name === undefined ? [] : [{ name, protocol: protocolOf(protocol), port: containerPort }],
    ),
  );
  return { namespace: pod.metadata.namespace ?? "", labels: pod.metadata.labels ?? {}, address, slot, ports };
}

/** A policy whose selector cannot be parsed might be about any sandbox of its namespace: it is about all, and allows nothing. */
function closedIfUnreadable(policy: NetworkPolicy): NetworkPolicy {
  const { spec } = policy;
  if (spec === undefined || isReadable(spec.podSelector ?? {})) return policy;
  return { ...policy, spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } };
}

function selects(policy: NetworkPolicy, endpoint: Endpoint): boolean {
  if (policy.metadata.namespace !== endpoint.namespace) return false;
  return matchesSelector(policy.spec?.podSelector ?? {}, endpoint.labels);
}

/** Without a list of types a policy is about ingress, and about egress if it has egress rules. */
function isAbout(policy: NetworkPolicy, direction: "Ingress" | "Egress"): boolean {
  const types = policy.spec?.policyTypes;
  if (types !== undefined && types.length > 0) return types.includes(direction);
  return direction === "Ingress" || policy.spec?.egress !== undefined;
}

/** Nothing comes in unless a policy lets it in: sandboxes are strangers to each other. */
function compileIngress(endpoint: Endpoint, selecting: readonly NetworkPolicy[], peers: PeerGroups): AllowRule[] {
  return selecting
    .filter((policy) => isAbout(policy, "Ingress"))
    .flatMap((policy) =>
      (policy.spec?.ingress ?? []).map((rule) => {
        const ports = resolvePorts(rule.ports, (name, protocol) => namedPorts(endpoint, name, protocol));
        return { ...peersOf(policy, rule.from, peers), ...(ports !== undefined && { ports }) };
      }),
    );
}

function compileEgress(selecting: readonly NetworkPolicy[], peers: PeerGroups): AllowRule[] {
  const policies = selecting.filter((policy) => isAbout(policy, "Egress"));
  if (policies.length === 0) return [defaultEgress];
  return policies.flatMap((policy) =>
    (policy.spec?.egress ?? []).flatMap((rule) => {
      const numbered = rule.ports?.filter(({ port }) => typeof port !== "string");
      const named = rule.ports?.filter(({ port }) => typeof port === "string") ?? [];
      const ports = resolvePorts(numbered, () => []);
      const plain = { ...peersOf(policy, rule.to, peers), ...(ports !== undefined && { ports }) };
      const isPlain = named.length === 0 || (numbered?.length ?? 0) > 0;
      return [...(isPlain ? [plain] : []), ...named.flatMap((port) => toNamedPort(policy, rule.to, { port, peers }))];
    }),
  );
}

/** A named port means another number in every peer, so those with the same number share a rule. */
function toNamedPort(
  policy: NetworkPolicy,
  to: readonly NetworkPolicyPeer[] | undefined,
  { port, peers }: { readonly port: NetworkPolicyPort; readonly peers: PeerGroups },
): AllowRule[] {
  const selectors =
    to === undefined || to.length === 0 ? [undefined] : to.filter(({ ipBlock }) => ipBlock === undefined);
  const protocol = protocolOf(port.protocol);
  return selectors.flatMap((peer) =>
    peers
      .byPort(policy, peer, { name: String(port.port), protocol })
      .map(({ group, port: number }) => ({ groups: [group], ports: [{ protocol, port: number }] })),
  );
}

/** Neither list means any; an empty one matches nothing. */
function peersOf(
  policy: NetworkPolicy,
  list: readonly NetworkPolicyPeer[] | undefined,
  peers: PeerGroups,
): Pick<AllowRule, "blocks" | "groups"> {
  if (list === undefined || list.length === 0) return {};
  const blocks = list.flatMap((peer) => (peer.ipBlock === undefined ? [] : ipBlock(peer.ipBlock)));
  const groups = list.filter((peer) => peer.ipBlock === undefined).map((peer) => peers.of(policy, peer));
  if (groups.length === 0) return { blocks };
  return blocks.length === 0 ? { groups } : { groups, blocks };
}

/** IPv6 is closed altogether, so its blocks open nothing. */
function ipBlock({ cidr, except }: IPBlock): RuleBlock[] {
  if (cidr.includes(":")) return [];
  const kept = (except ?? []).filter((range) => !range.includes(":"));
  return [{ cidr, ...(kept.length > 0 && { except: kept }) }];
}

/** Undefined means every port; an empty list (a name that no container port has) matches nothing. */
function resolvePorts(
  ports: readonly NetworkPolicyPort[] | undefined,
  byName: (name: string, protocol: RuleProtocol) => readonly number[],
): RulePort[] | undefined {
  if (ports === undefined || ports.length === 0) return undefined;
  return ports.flatMap(({ port, endPort, protocol: written }): RulePort[] => {
    const protocol = protocolOf(written);
    if (typeof port === "string") return byName(port, protocol).map((number) => ({ protocol, port: number }));
    return [{ protocol, ...(port !== undefined && { port }), ...(endPort !== undefined && { endPort }) }];
  });
}

function protocolOf(protocol: string | undefined): RuleProtocol {
  return protocol === "UDP" || protocol === "SCTP" ? protocol : "TCP";
}
