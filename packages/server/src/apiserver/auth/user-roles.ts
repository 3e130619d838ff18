import { aliasResources, coreGroup, extensionsGroup, ownGroup, type PolicyRule } from "@agent-sandbox/api";

const read = ["get", "list", "watch"];
const write = ["create", "delete", "deletecollection", "patch", "update"];
const readWrite = [...read, ...write];

/** A ClusterRole for people, and the role of Kubernetes that takes it in. */
export interface UserRole {
  readonly name: string;
  readonly rules: PolicyRule[];
  readonly aggregatedTo?: "view" | "edit" | "admin";
}

/** What `view`, `edit` and `admin` are made of: Kubernetes' own parts for the kinds that are served here, then ours. */
export function userRoles(): UserRole[] {
  return [
    { name: "system:aggregate-to-view", rules: viewRules(), aggregatedTo: "view" },
    { name: "system:aggregate-to-edit", rules: editRules(), aggregatedTo: "edit" },
    { name: "system:aggregate-to-admin", rules: adminRules(), aggregatedTo: "admin" },
    ...ownUserRoles(),
  ];
}

/**
 * The roles for our kinds, which clusters get as manifests. No status is writable through them: what a controller saw, and
 * which Pod it made, is proof only as long as users cannot write it.
 */
export function ownUserRoles(): UserRole[] {
  return [
    { name: "agent-sandbox-view", rules: ownViewRules(), aggregatedTo: "view" },
    { name: "agent-sandbox-edit", rules: ownEditRules(), aggregatedTo: "edit" },
    { name: "sandbox-user", rules: sandboxUserRules(), aggregatedTo: "edit" },
  ];
}

const workloads = ["configmaps", "persistentvolumeclaims", "pods", "services"];
const sandboxKinds: readonly (readonly [group: string, resources: string[]])[] = [
  [coreGroup, ["sandboxes", ...aliasResources]],
  [extensionsGroup, ["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"]],
  [ownGroup, ["sandboxsnapshots", "sandboxarchives"]],
];

function viewRules(): PolicyRule[] {
  return [
    {
      apiGroups: [""],
      resources: [
        ...workloads,
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims/status",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services/status",
      ],
      verbs: read,
    },
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
    { apiGroups: ["events.k8s.io"], resources: ["events"], verbs: read },
    { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: read },
    { apiGroups: ["metrics.k8s.io"], resources: ["pods", "nodes"], verbs: read },
  ];
}

function editRules(): PolicyRule[] {
  const streams = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"];
  return [
    { apiGroups: [""], resources: [...streams, "secrets"], verbs: read },
    { apiGroups: [""], resources: ["serviceaccounts"], verbs: ["impersonate"] },
    { apiGroups: [""], resources: streams, verbs: write },
    { apiGroups: [""], resources: [...workloads, "secrets", "serviceaccounts"], verbs: write },
    { apiGroups: [""], resources: ["pods/eviction", "serviceaccounts/token"], verbs: ["create"] },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: write },
    { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: write },
    { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: readWrite },
  ];
}

function adminRules(): PolicyRule[] {
  return [
    { apiGroups: ["authorization.k8s.io"], resources: ["localsubjectaccessreviews"], verbs: ["create"] },
    { apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings", "roles"], verbs: readWrite },
  ];
}

function ownViewRules(): PolicyRule[] {
  return sandboxKinds.map(([apiGroup, resources]) => ({
    apiGroups: [apiGroup],
    resources: resources.flatMap((resource) => [resource, `${resource}/status`]),
    verbs: read,
  }));
}

function ownEditRules(): PolicyRule[] {
  return [
    ...sandboxKinds.map(([apiGroup, resources]) => ({ apiGroups: [apiGroup], resources, verbs: write })),
    { apiGroups: [coreGroup], resources: ["sandboxes/scale", "sandboxes/connect"], verbs: readWrite },
    { apiGroups: [extensionsGroup], resources: ["sandboxwarmpools/scale"], verbs: readWrite },
  ];
}

/**
 * What a user needs to work in sandboxes without managing them: claims, talking to sandboxes, and what the published clients
 * read. `patch` without `update` reaches only the fields of the verbs beside it (`SandboxUse`).
 */
function sandboxUserRules(): PolicyRule[] {
  return [
    {
      apiGroups: [extensionsGroup],
      resources: ["sandboxclaims"],
      verbs: [...read, "create", "delete", "patch", "update"],
    },
    { apiGroups: [extensionsGroup], resources: ["sandboxtemplates", "sandboxwarmpools"], verbs: read },
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: [...read, "patch", "suspend", "resume", "extend"] },
    { apiGroups: [coreGroup], resources: ["sandboxes/connect"], verbs: ["create", "get"] },
    // Writing is for the role that may write pools too: the alias of a claim brings a pool without members with it.
    { apiGroups: [coreGroup], resources: [...aliasResources], verbs: read },
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots"], verbs: read },
    { apiGroups: [ownGroup], resources: ["sandboxarchives"], verbs: [...read, "patch", "recall"] },
    { apiGroups: [""], resources: ["pods", "pods/log", "services", "events"], verbs: read },
    { apiGroups: [""], resources: ["pods/exec", "pods/attach", "pods/portforward"], verbs: ["create", "get"] },
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
  ];
}
