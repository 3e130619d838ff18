import type { Namespace, NetworkPolicy, NetworkPolicySpec } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { AllowRule, RuleSet } from "../host/ruleset.ts";
import { compileRules } from "./compile-rules.ts";
import { planRuleChange } from "./plan-rule-change.ts";
import type { Endpoint } from "./rule-sources.ts";

function endpoint(name: string, address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return {
    namespace: "a",
    labels: { app: name },
    address,
    slot: Number(address.split(".").at(-1)),
    ports: [],
    ...overrides,
  };
}

function policy(spec: NetworkPolicySpec, namespace = "a"): NetworkPolicy {
  return { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: { name: "p", namespace }, spec };
}

function namespace(name: string, labels: Record<string, string> = {}): Namespace {
  return { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
}

const web = endpoint("web", "10.200.0.2", { ports: [{ name: "http", protocol: "TCP", port: 8080 }] });
const db = endpoint("db", "10.200.0.3");
const other = endpoint("web", "10.200.0.4", { namespace: "b" });
const endpoints = [web, db, other];
const namespaces = [namespace("a"), namespace("b", { team: "x" })];

/** What a sandbox's rules say, with the members of groups in the groups' place. */
function rulesOf(address: string, policies: NetworkPolicy[]) {
  return spelledOut(compileRules({ endpoints, namespaces, policies }), address);
}

function spelledOut({ endpoints: list, groups = [] }: RuleSet, address: string) {
  const members = new Map(groups.map((group) => [group.id, group.addresses]));
  const spell = (rules: readonly AllowRule[]) =>
    rules.map(({ groups: ids, ...rest }) =>
      ids === undefined ? rest : { ...rest, peers: ids.flatMap((id) => members.get(id) ?? ["unknown"]) },
    );
  const found = list.find((rules) => rules.address === address);
  return found && { ...found, ingress: spell(found.ingress), egress: spell(found.egress) };
}

test("compileRules: without a policy nothing comes in, and only the public internet is reached", () => {
  const rules = rulesOf("10.200.0.2", []);
  expect(rules?.ingress).toEqual([]);
  expect(rules?.egress).toHaveLength(1);
  expect(rules?.egress[0]?.blocks?.[0]?.cidr).toBe("0.0.0.0/0");
  expect(rules?.egress[0]?.blocks?.[0]?.except).toEqual(
    expect.arrayContaining(["10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16", "172.16.0.0/12", "100.64.0.0/10"]),
  );
});

test.each<[string, NetworkPolicySpec, unknown]>([
  ["an empty list of rules opens nothing", { podSelector: {}, policyTypes: ["Ingress"], ingress: [] }, []],
  ["an empty rule opens everything", { podSelector: {}, ingress: [{}] }, [{}]],
  [
    "a pod selector means pods of the policy's namespace",
    { podSelector: {}, ingress: [{ from: [{ podSelector: { matchLabels: { app: "web" } } }] }] },
    [{ peers: ["10.200.0.2"] }],
  ],
  [
    "a namespace selector means all pods there",
    { podSelector: {}, ingress: [{ from: [{ namespaceSelector: { matchLabels: { team: "x" } } }] }] },
    [{ peers: ["10.200.0.4"] }],
  ],
  [
    "both selectors of one peer must hold",
    {
      podSelector: {},
      ingress: [
        { from: [{ namespaceSelector: { matchLabels: { team: "x" } }, podSelector: { matchLabels: { app: "db" } } }] },
      ],
    },
    [{ peers: [] }],
  ],
  [
    "the name label of a namespace is always there",
    {
      podSelector: {},
      ingress: [{ from: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "b" } } }] }],
    },
    [{ peers: ["10.200.0.4"] }],
  ],
  [
    "an ipBlock keeps its exceptions",
    { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: "1.0.0.0/8", except: ["1.2.0.0/16"] } }] }] },
    [{ blocks: [{ cidr: "1.0.0.0/8", except: ["1.2.0.0/16"] }] }],
  ],
  [
    "an IPv6 block opens nothing",
    { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: "::/0" } }] }] },
    [{ blocks: [] }],
  ],
  [
    "a port range is kept",
    { podSelector: {}, ingress: [{ ports: [{ protocol: "UDP", port: 10, endPort: 20 }] }] },
    [{ ports: [{ protocol: "UDP", port: 10, endPort: 20 }] }],
  ],
  [
    "a named port nobody has matches nothing",
    { podSelector: {}, ingress: [{ ports: [{ port: "none" }] }] },
    [{ ports: [] }],
  ],
  [
    "matchExpressions select",
    {
      podSelector: {},
      ingress: [{ from: [{ podSelector: { matchExpressions: [{ key: "app", operator: "NotIn", values: ["db"] }] } }] }],
    },
    [{ peers: ["10.200.0.2"] }],
  ],
  ["a policy of egress alone leaves ingress closed", { podSelector: {}, policyTypes: ["Egress"], egress: [{}] }, []],
])("compileRules: ingress: %s", (_title, spec, expected) => {
  expect(rulesOf("10.200.0.3", [policy(spec)])?.ingress).toEqual(expected);
});

test("compileRules: an ingress port by name is the selected pod's own", () => {
  const spec = { podSelector: { matchLabels: { app: "web" } }, ingress: [{ ports: [{ port: "http" }] }] };
  expect(rulesOf("10.200.0.2", [policy(spec)])?.ingress).toEqual([{ ports: [{ protocol: "TCP", port: 8080 }] }]);
});

test("compileRules: an egress port by name is each peer's own", () => {
  const spec = {
    podSelector: {},
    policyTypes: ["Egress"],
    egress: [{ to: [{ podSelector: {} }], ports: [{ port: "http" }] }],
  };
  expect(rulesOf("10.200.0.3", [policy(spec)])?.egress).toEqual([
    { peers: ["10.200.0.2"], ports: [{ protocol: "TCP", port: 8080 }] },
  ]);
});

test("compileRules: a policy about egress replaces the default", () => {
  const spec = { podSelector: {}, policyTypes: ["Egress"] };
  expect(rulesOf("10.200.0.2", [policy(spec)])?.egress).toEqual([]);
});

test("compileRules: two policies add up", () => {
  const one = policy({ podSelector: {}, ingress: [{ ports: [{ port: 1 }] }] });
  const two = policy({ podSelector: {}, ingress: [{ ports: [{ port: 2 }] }] });
  expect(rulesOf("10.200.0.2", [one, two])?.ingress).toHaveLength(2);
});

test("compileRules: a selector that nobody can read opens nothing, neither for its sandboxes nor for its peers", () => {
  const unreadable = { matchExpressions: [{ key: "app", operator: "Near", values: ["web"] }] };
  const open = { ingress: [{}], egress: [{}], policyTypes: ["Ingress", "Egress"] };
  expect(rulesOf("10.200.0.2", [policy({ podSelector: unreadable, ...open })])).toMatchObject({
    ingress: [],
    egress: [],
  });
  const toPeer = policy({ podSelector: {}, ingress: [{ from: [{ podSelector: unreadable }] }] });
  expect(rulesOf("10.200.0.2", [toPeer])?.ingress).toEqual([{ peers: [] }]);
});

test("compileRules: a label cannot take another namespace's name", () => {
  const posing = namespace("b", { "kubernetes.io/metadata.name": "trusted" });
  const from = [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "trusted" } } }];
  const sources = { endpoints, namespaces: [posing], policies: [policy({ podSelector: {}, ingress: [{ from }] })] };
  expect(spelledOut(compileRules(sources), "10.200.0.2")?.ingress).toEqual([{ peers: [] }]);
});

test("compileRules: a policy of another namespace says nothing", () => {
  expect(rulesOf("10.200.0.2", [policy({ podSelector: {}, ingress: [{}] }, "b")])?.ingress).toEqual([]);
});

test("compileRules: a sleeping sandbox keeps its ingress rules", () => {
  const { slot: _slot, ...asleep } = db;
  const rules = compileRules({
    endpoints: [asleep],
    namespaces,
    policies: [policy({ podSelector: {}, ingress: [{}] })],
  });
  expect(rules.sleeping).toEqual([{ address: "10.200.0.3", ingress: [{}] }]);
  expect(rules.endpoints).toEqual([]);
});

test("compileRules: a policy of many about many: who joins is a member more, and no rule of the others changes", () => {
  const policies = [policy({ podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] })];
  const many = Array.from({ length: 50 }, (_each, index) => endpoint("web", `10.200.1.${index + 1}`));
  const before = compileRules({ endpoints: many, namespaces, policies });
  const after = compileRules({ endpoints: [...many, endpoint("web", "10.200.2.1")], namespaces, policies });
  expect(planRuleChange(before, after)).toMatchObject({
    endpoints: [{ address: "10.200.2.1" }],
    groups: [{ added: ["10.200.2.1"], removed: [] }],
  });
});

test("compileRules: ports by number and by name in one rule: the numbers hold for ranges too", () => {
  const to = [{ ipBlock: { cidr: "1.0.0.0/8" } }, { podSelector: { matchLabels: { app: "web" } } }];
  const spec = { podSelector: {}, policyTypes: ["Egress"], egress: [{ to, ports: [{ port: 53 }, { port: "http" }] }] };
  expect(rulesOf("10.200.0.3", [policy(spec)])?.egress).toEqual([
    { blocks: [{ cidr: "1.0.0.0/8" }], peers: ["10.200.0.2"], ports: [{ protocol: "TCP", port: 53 }] },
    { peers: ["10.200.0.2"], ports: [{ protocol: "TCP", port: 8080 }] },
  ]);
});

test("compileRules: an awake sandbox whose callers wait is said to be held", () => {
  const rules = compileRules({ endpoints: [{ ...db, isHeld: true }, web], namespaces, policies: [] });
  expect(rules.endpoints.map(({ held }) => held)).toEqual([undefined, true]);
});
