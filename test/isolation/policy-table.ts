import type { NetworkPolicy, NetworkPolicyPeer } from "@agent-sandbox/api";

type PolicySpec = NonNullable<NetworkPolicy["spec"]>;

/** Policies that are in force together, by namespace. */
export interface PolicyCase {
  readonly title: string;
  readonly policies: readonly { readonly namespace: string; readonly spec: PolicySpec }[];
}

const everything = {};
const fromApp = (app: string): NetworkPolicyPeer => ({ podSelector: { matchLabels: { app } } });
const fromTeam = (team: string): NetworkPolicyPeer => ({ namespaceSelector: { matchLabels: { team } } });

/** All sandboxes may leave to all others: most cases are about ingress, and ingress alone opens nothing. */
const leaveAll = (namespace: string): PolicyCase["policies"][number] => ({
  namespace,
  spec: { podSelector: {}, policyTypes: ["Egress"], egress: [everything] },
});

const open = [leaveAll("x"), leaveAll("y"), leaveAll("z")];

function ingress(title: string, spec: Omit<PolicySpec, "policyTypes">, namespace = "x"): PolicyCase {
  return { title, policies: [...open, { namespace, spec: { ...spec, policyTypes: ["Ingress"] } }] };
}

const acceptAll: PolicyCase["policies"] = ["x", "y", "z"].map((namespace) => ({
  namespace,
  spec: { podSelector: {}, policyTypes: ["Ingress"], ingress: [everything] },
}));

function egress(title: string, spec: Omit<PolicySpec, "policyTypes">, namespace = "x"): PolicyCase {
  return { title, policies: [...acceptAll, { namespace, spec: { ...spec, policyTypes: ["Egress"] } }] };
}

/** The table; pods are a, b and c in namespaces x, y and z, which are of team x, y and z. */
export const policyTable: readonly PolicyCase[] = [
  { title: "no policy", policies: [] },
  { title: "egress alone", policies: open },
  { title: "ingress alone", policies: acceptAll },
  { title: "all to all", policies: [...open, ...acceptAll] },
  ingress("deny all", { podSelector: {} }),
  ingress("allow all to one namespace", { podSelector: {}, ingress: [everything] }),
  ingress("allow all to one app", { podSelector: { matchLabels: { app: "a" } }, ingress: [everything] }),
  ingress("from an app of the same namespace", { podSelector: {}, ingress: [{ from: [fromApp("b")] }] }),
  ingress("from every pod of the same namespace", { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] }),
  ingress("from a namespace", { podSelector: {}, ingress: [{ from: [fromTeam("y")] }] }),
  ingress("from all namespaces", { podSelector: {}, ingress: [{ from: [{ namespaceSelector: {} }] }] }),
  ingress("from an app of another namespace", {
    podSelector: {},
    ingress: [{ from: [{ ...fromTeam("y"), ...fromApp("c") }] }],
  }),
  ingress("from an app or a namespace", { podSelector: {}, ingress: [{ from: [fromApp("b"), fromTeam("z")] }] }),
  ingress("by expression", {
    podSelector: { matchExpressions: [{ key: "app", operator: "In", values: ["a", "b"] }] },
    ingress: [
      { from: [{ namespaceSelector: { matchExpressions: [{ key: "team", operator: "NotIn", values: ["x", "y"] }] } }] },
    ],
  }),
  ingress("on one port", { podSelector: {}, ingress: [{ ports: [{ protocol: "TCP", port: 8080 }] }] }),
  ingress("on a UDP port only", { podSelector: {}, ingress: [{ ports: [{ protocol: "UDP", port: 8081 }] }] }),
  ingress("on a range of ports", {
    podSelector: {},
    ingress: [{ ports: [{ protocol: "TCP", port: 8081, endPort: 9000 }] }],
  }),
  ingress("on a named port", { podSelector: {}, ingress: [{ ports: [{ protocol: "TCP", port: "second" }] }] }),
  ingress("from an app on a port, from a namespace on another", {
    podSelector: {},
    ingress: [
      { from: [fromApp("b")], ports: [{ protocol: "TCP", port: 8080 }] },
      { from: [fromTeam("z")], ports: [{ protocol: "UDP", port: 8081 }] },
    ],
  }),
  {
    title: "two policies add up",
    policies: [
      ...open,
      { namespace: "x", spec: { podSelector: {}, policyTypes: ["Ingress"], ingress: [{ from: [fromTeam("y")] }] } },
      {
        namespace: "x",
        spec: {
          podSelector: { matchLabels: { app: "a" } },
          policyTypes: ["Ingress"],
          ingress: [{ from: [fromTeam("z")] }],
        },
      },
    ],
  },
  egress("leave to nothing", { podSelector: {} }),
  egress("leave to an app", { podSelector: {}, egress: [{ to: [fromApp("b")] }] }),
  egress("leave to a namespace on a port", {
    podSelector: { matchLabels: { app: "a" } },
    egress: [{ to: [fromTeam("z")], ports: [{ protocol: "UDP", port: 8080 }] }],
  }),
  egress("leave to a named port", { podSelector: {}, egress: [{ ports: [{ protocol: "TCP", port: "second" }] }] }),
  egress("leave to an address range without a part", {
    podSelector: {},
    egress: [{ to: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["10.128.0.0/9"] } }] }],
  }),
];
