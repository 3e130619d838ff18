import {
  aliasResources,
  coreGroup,
  extensionsGroup,
  ownGroup,
  type PolicyRule,
  podSnapshotGroup,
} from "@agent-sandbox/api";
import type { ComponentName } from "./components.ts";

const read = ["get", "list", "watch"];
const all = ["create", "delete", "get", "list", "patch", "update", "watch"];
const writeStatus = ["get", "patch", "update"];

/** A ClusterRole of one of our components and who holds it. */
export interface ComponentRole {
  readonly name: string;
  readonly rules: PolicyRule[];
  readonly boundTo?:
    | { readonly kind: "account"; readonly name: ComponentName }
    | { readonly kind: "group"; readonly name: string };
}

/** The rights of our components: what each one needs and no more. */
export function componentRoles(): ComponentRole[] {
  const controller = { kind: "account", name: "agent-sandbox-controller" } as const;
  const router = { kind: "account", name: "sandbox-router" } as const;
  return [
    { name: "agent-sandbox-controller", rules: controllerRules(), boundTo: controller },
    { name: "agent-sandbox-controller-extensions", rules: extensionRules(), boundTo: controller },
    { name: "agent-sandbox-controller-snapshots", rules: snapshotRules(), boundTo: controller },
    { name: "sandbox-router", rules: routerRules(), boundTo: router },
    {
      name: "agent-sandbox-standins",
      rules: standinRules(),
      boundTo: { kind: "account", name: "agent-sandbox-standins" },
    },
    { name: "system:node", rules: nodeRules(), boundTo: { kind: "group", name: "system:nodes" } },
  ];
}

function controllerRules(): PolicyRule[] {
  const crds = [
    "sandboxes.agents.x-k8s.io",
    ...["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"].map((name) => `${name}.${extensionsGroup}`),
  ];
  return [
    { apiGroups: [""], resources: ["persistentvolumeclaims", "pods", "services"], verbs: all },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create", "patch"] },
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: all },
    { apiGroups: [coreGroup], resources: ["sandboxes/finalizers", "sandboxes/status"], verbs: writeStatus },
    {
      apiGroups: ["apiextensions.k8s.io"],
      resources: ["customresourcedefinitions"],
      resourceNames: crds,
      verbs: writeStatus,
    },
    // To tell a runtime class that is not there from another refusal of a Pod.
    { apiGroups: ["node.k8s.io"], resources: ["runtimeclasses"], verbs: ["get"] },
    {
      apiGroups: ["coordination.k8s.io"],
      resources: ["leases"],
      verbs: ["create", "get", "list", "patch", "update", "watch"],
    },
  ];
}

function extensionRules(): PolicyRule[] {
  const kinds = ["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"];
  return [
    { apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "patch", "update", "watch"] },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create", "patch", "update"] },
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: all },
    { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: all },
    { apiGroups: [extensionsGroup], resources: kinds, verbs: all },
    {
      apiGroups: [extensionsGroup],
      resources: kinds.flatMap((kind) => [`${kind}/finalizers`, `${kind}/status`]),
      verbs: writeStatus,
    },
    { apiGroups: [coreGroup], resources: [...aliasResources], verbs: [...read, "delete"] },
    {
      apiGroups: [coreGroup],
      resources: aliasResources.flatMap((kind) => [`${kind}/finalizers`, `${kind}/status`]),
      verbs: writeStatus,
    },
    { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: all },
  ];
}

function snapshotRules(): PolicyRule[] {
  return [
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots", "sandboxarchives"], verbs: all },
    {
      apiGroups: [ownGroup],
      resources: ["sandboxsnapshots", "sandboxarchives"].flatMap((kind) => [`${kind}/finalizers`, `${kind}/status`]),
      verbs: writeStatus,
    },
  ];
}

function routerRules(): PolicyRule[] {
  return [
    { apiGroups: [""], resources: ["pods"], verbs: read },
    // Waking a sandbox is an annotation on it, and the only change that this right allows.
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: [...read, "patch", "resume"] },
    // As is bringing one back from the archive.
    { apiGroups: [ownGroup], resources: ["sandboxarchives"], verbs: [...read, "patch", "recall"] },
    { apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"] },
    { apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] },
  ];
}

/** Garbage collection and namespace deletion must reach every kind there is or will be; nothing else here is wide. */
function standinRules(): PolicyRule[] {
  return [
    {
      apiGroups: ["*"],
      resources: ["*"],
      verbs: ["get", "list", "watch", "patch", "update", "delete", "deletecollection"],
    },
    { apiGroups: [""], resources: ["pods/binding"], verbs: ["create"] },
    {
      apiGroups: [""],
      resources: ["serviceaccounts", "configmaps", "services", "pods", "persistentvolumes"],
      verbs: ["create"],
    },
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["create"] },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create"] },
    { apiGroups: [podSnapshotGroup], resources: ["podsnapshots"], verbs: ["create"] },
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots"], verbs: ["create"] },
    { nonResourceURLs: ["/api", "/api/*", "/apis", "/apis/*"], verbs: ["get"] },
  ];
}

function nodeRules(): PolicyRule[] {
  return [
    { apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"] },
    {
      apiGroups: ["authorization.k8s.io"],
      resources: ["localsubjectaccessreviews", "subjectaccessreviews"],
      verbs: ["create"],
    },
    { apiGroups: [""], resources: ["nodes"], verbs: ["create", "get", "list", "watch", "patch", "update"] },
    { apiGroups: [""], resources: ["nodes/status"], verbs: ["patch", "update"] },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create", "patch", "update"] },
    { apiGroups: [""], resources: ["pods", "services", "namespaces"], verbs: read },
    { apiGroups: [""], resources: ["pods"], verbs: ["create", "delete", "patch"] },
    { apiGroups: [""], resources: ["pods/status"], verbs: ["patch", "update"] },
    { apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"] },
    // Which ConfigMaps, Secrets and claims a node may read depends on its pods: `NodeReads` decides.
    { apiGroups: [""], resources: ["persistentvolumes"], verbs: read },
    { apiGroups: [""], resources: ["persistentvolumeclaims/status"], verbs: writeStatus },
    { apiGroups: [""], resources: ["serviceaccounts/token"], verbs: ["create"] },
    { apiGroups: [""], resources: ["serviceaccounts"], verbs: ["get"] },
    {
      apiGroups: ["coordination.k8s.io"],
      resources: ["leases"],
      verbs: ["create", "delete", "get", "patch", "update"],
    },
    { apiGroups: ["node.k8s.io"], resources: ["runtimeclasses"], verbs: read },
    { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: read },
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
    // Activity is reported as an annotation, the only change that this right allows; the address of a Pod is its Sandbox's.
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: [...read, "patch", "resume"] },
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots", "sandboxarchives"], verbs: read },
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots/status", "sandboxarchives/status"], verbs: writeStatus },
  ];
}
