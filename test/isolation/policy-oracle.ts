import type { LabelSelector, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort } from "@agent-sandbox/api";
import type { PolicyCase } from "./policy-table.ts";

/** A pod as the oracle knows it. */
export interface MatrixPod {
  readonly namespace: string;
  readonly app: string;
  readonly address: string;
}

/** One connection of the matrix. */
export interface Attempt {
  readonly from: MatrixPod;
  readonly to: MatrixPod;
  readonly port: number;
  readonly protocol: "TCP" | "UDP";
}

type PolicySpec = NonNullable<NetworkPolicy["spec"]>;

/** Port names of every pod of the matrix. */
export const portNames: Readonly<Record<string, { readonly protocol: "TCP" | "UDP"; readonly port: number }>> = {
  first: { protocol: "TCP", port: 8080 },
  second: { protocol: "TCP", port: 8081 },
};

/**
 * Whether Kubernetes' rules, under our default of closed, allow a connection. Written from the documentation of the API alone, packet by
 * packet, and without any of the product's code.
 */
export function allows({ policies }: PolicyCase, attempt: Attempt): boolean {
  const { from, to } = attempt;
  if (from === to) return true;
  const leaving = policies.filter(({ namespace, spec }) => governs(namespace, spec, from) && hasType(spec, "Egress"));
  const arriving = policies.filter(({ namespace, spec }) => governs(namespace, spec, to) && hasType(spec, "Ingress"));
  // Without a policy a sandbox reaches the public internet only, and no other sandbox reaches it.
  const mayLeave = leaving.some(({ namespace, spec }) =>
    (spec.egress ?? []).some((rule) => peerMatches(rule.to, to, namespace) && portMatches(rule.ports, attempt)),
  );
  const mayArrive = arriving.some(({ namespace, spec }) =>
    (spec.ingress ?? []).some((rule) => peerMatches(rule.from, from, namespace) && portMatches(rule.ports, attempt)),
  );
  return mayLeave && mayArrive;
}

function governs(namespace: string, spec: PolicySpec, pod: MatrixPod): boolean {
  return namespace === pod.namespace && chooses(spec.podSelector ?? {}, { app: pod.app });
}

function hasType(spec: PolicySpec, type: string): boolean {
  return spec.policyTypes?.includes(type) === true;
}

function chooses(selector: LabelSelector, labels: Readonly<Record<string, string>>): boolean {
  for (const [key, value] of Object.entries(selector.matchLabels ?? {})) if (labels[key] !== value) return false;
  for (const { key, operator, values } of selector.matchExpressions ?? []) {
    const isIn = values?.includes(labels[key] ?? "") === true;
    if (operator === "In" && !isIn) return false;
    if (operator === "NotIn" && isIn) return false;
  }
  return true;
}

function peerMatches(peers: readonly NetworkPolicyPeer[] | undefined, pod: MatrixPod, home: string): boolean {
  if (peers === undefined || peers.length === 0) return true;
  return peers.some(({ ipBlock, namespaceSelector, podSelector }) => {
    if (ipBlock !== undefined)
      return within(pod.address, ipBlock.cidr) && !(ipBlock.except ?? []).some((range) => within(pod.address, range));
    const isThere =
      namespaceSelector === undefined ? pod.namespace === home : chooses(namespaceSelector, { team: pod.namespace });
    return isThere && chooses(podSelector ?? {}, { app: pod.app });
  });
}

function portMatches(ports: readonly NetworkPolicyPort[] | undefined, { port, protocol }: Attempt): boolean {
  if (ports === undefined || ports.length === 0) return true;
  return ports.some((rule) => {
    if ((rule.protocol ?? "TCP") !== protocol) return false;
    if (rule.port === undefined) return true;
    const first = typeof rule.port === "string" ? portNames[rule.port]?.port : rule.port;
    return first !== undefined && port >= first && port <= (rule.endPort ?? first);
  });
}

function within(address: string, cidr: string): boolean {
  const [network = "", bits = "32"] = cidr.split("/");
  const shift = 32n - BigInt(bits);
  return numberOf(address) >> shift === numberOf(network) >> shift;
}

function numberOf(address: string): bigint {
  return address.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
}
