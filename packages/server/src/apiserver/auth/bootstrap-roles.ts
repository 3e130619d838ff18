import {
  type ClusterRole,
  type ClusterRoleBinding,
  coreGroup,
  extensionsGroup,
  ownGroup,
  type PolicyRule,
  type Role,
  type RoleBinding,
  type Subject,
} from "@agent-sandbox/api";
import { authenticatedGroup, mastersGroup, unauthenticatedGroup } from "./authenticator.ts";
import { componentRoles } from "./component-roles.ts";
import { systemNamespace } from "./components.ts";
import { aggregatedRules } from "./rbac-index.ts";

const rbacGroup = "rbac.authorization.k8s.io";
const rbacVersion = "rbac.authorization.k8s.io/v1";
const read = ["get", "list", "watch"];
const write = ["create", "delete", "deletecollection", "patch", "update"];
const aggregateTo = (role: string): Record<string, string> => ({ [`${rbacGroup}/aggregate-to-${role}`]: "true" });

/** Every object that gives rights on a fresh engine; the same text is shipped for clusters where it is ours. */
export interface RbacObjects {
  readonly clusterRoles: readonly ClusterRole[];
  readonly clusterRoleBindings: readonly ClusterRoleBinding[];
  readonly roles: readonly Role[];
  readonly roleBindings: readonly RoleBinding[];
}

/** The roles and bindings that the embedded API server makes at its start, with Kubernetes' names where Kubernetes has them. */
export function bootstrapRbac(): RbacObjects {
  const plain = [
    ...generalRoles(),
    ...userRoleParts(),
    ...componentRoles().map(({ name, rules }) => clusterRole(name, rules)),
  ];
  let composed = composedRoles();
  // Admin takes in edit and edit takes in view: as many rounds as there are levels.
  for (const _level of composed) {
    composed = composed.map((role) => ({ ...role, rules: aggregatedRules(role, [...plain, ...composed]) }));
  }
  return {
    clusterRoles: [...plain, ...composed],
    clusterRoleBindings: [...generalBindings(), ...componentBindings()],
    roles: [],
    roleBindings: [],
  };
}

function clusterRole(name: string, rules: PolicyRule[], labels: Record<string, string> = {}): ClusterRole {
  return {
    apiVersion: rbacVersion,
    kind: "ClusterRole",
    metadata: {
      name,
      labels: { "kubernetes.io/bootstrapping": "rbac-defaults", ...labels },
      annotations: { [`${rbacGroup}/autoupdate`]: "true" },
    },
    rules,
  };
}

function binding(name: string, role: string, subjects: Subject[]): ClusterRoleBinding {
  return {
    apiVersion: rbacVersion,
    kind: "ClusterRoleBinding",
    metadata: {
      name,
      labels: { "kubernetes.io/bootstrapping": "rbac-defaults" },
      annotations: { [`${rbacGroup}/autoupdate`]: "true" },
    },
    roleRef: { apiGroup: rbacGroup, kind: "ClusterRole", name: role },
    subjects,
  };
}

function group(name: string): Subject {
  return { apiGroup: rbacGroup, kind: "Group", name };
}

function generalRoles(): ClusterRole[] {
  const discoveryPaths = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
  ];
  const publicPaths = ["/healthz", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/"];
  return [
    clusterRole("cluster-admin", [
      { apiGroups: ["*"], resources: ["*"], verbs: ["*"] },
      { nonResourceURLs: ["*"], verbs: ["*"] },
    ]),
    clusterRole("system:discovery", [{ nonResourceURLs: discoveryPaths, verbs: ["get"] }]),
    clusterRole("system:public-info-viewer", [{ nonResourceURLs: publicPaths, verbs: ["get"] }]),
    clusterRole("system:basic-user", [
      {
        apiGroups: ["authorization.k8s.io"],
        resources: ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        verbs: ["create"],
      },
      { apiGroups: ["authentication.k8s.io"], resources: ["selfsubjectreviews"], verbs: ["create"] },
    ]),
    clusterRole("system:auth-delegator", [
      { apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"] },
      { apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] },
    ]),
    clusterRole("system:service-account-issuer-discovery", [
      {
        nonResourceURLs: [
          "/.well-known/openid-configuration",
          "/.well-known/openid-configuration/",
          "/openid/v1/jwks",
          "/openid/v1/jwks/",
        ],
        verbs: ["get"],
      },
    ]),
    clusterRole("system:monitoring", [
      {
        nonResourceURLs: [
          "/healthz",
          "/healthz/*",
          "/livez",
          "/livez/*",
          "/metrics",
          "/metrics/slis",
          "/readyz",
          "/readyz/*",
        ],
        verbs: ["get"],
      },
    ]),
  ];
}

function composedRoles(): ClusterRole[] {
  const composed = (name: string, labels: Record<string, string> = {}): ClusterRole => ({
    ...clusterRole(name, [], labels),
    aggregationRule: { clusterRoleSelectors: [{ matchLabels: aggregateTo(name) }] },
  });
  return [composed("view", aggregateTo("edit")), composed("edit", aggregateTo("admin")), composed("admin")];
}

const workloads = ["configmaps", "persistentvolumeclaims", "pods", "services"];
const sandboxKinds: readonly [string, string[]][] = [
  [coreGroup, ["sandboxes"]],
  [extensionsGroup, ["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"]],
  [ownGroup, ["sandboxsnapshots"]],
];

function userRoleParts(): ClusterRole[] {
  return [
    clusterRole("system:aggregate-to-view", viewRules(), aggregateTo("view")),
    clusterRole("system:aggregate-to-edit", editRules(), aggregateTo("edit")),
    clusterRole("system:aggregate-to-admin", adminRules(), aggregateTo("admin")),
    clusterRole("sandbox-user", sandboxUserRules(), aggregateTo("edit")),
  ];
}

function viewRules(): PolicyRule[] {
  const ours = sandboxKinds.map(
    ([apiGroup, resources]): PolicyRule => ({
      apiGroups: [apiGroup],
      resources: resources.flatMap((resource) => [resource, `${resource}/status`]),
      verbs: read,
    }),
  );
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
    ...ours,
  ];
}

function editRules(): PolicyRule[] {
  const ours = sandboxKinds.map(
    ([apiGroup, resources]): PolicyRule => ({ apiGroups: [apiGroup], resources, verbs: write }),
  );
  return [
    {
      apiGroups: [""],
      resources: ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"],
      verbs: read,
    },
    { apiGroups: [""], resources: ["serviceaccounts"], verbs: ["impersonate"] },
    {
      apiGroups: [""],
      resources: ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"],
      verbs: write,
    },
    { apiGroups: [""], resources: [...workloads, "secrets", "serviceaccounts"], verbs: write },
    { apiGroups: [""], resources: ["pods/eviction", "serviceaccounts/token"], verbs: ["create"] },
    { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: write },
    { apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: write },
    { apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: [...read, ...write] },
    { apiGroups: [coreGroup], resources: ["sandboxes/scale", "sandboxes/connect"], verbs: [...read, ...write] },
    { apiGroups: [extensionsGroup], resources: ["sandboxwarmpools/scale"], verbs: [...read, ...write] },
    ...ours,
  ];
}

function adminRules(): PolicyRule[] {
  return [
    { apiGroups: ["authorization.k8s.io"], resources: ["localsubjectaccessreviews"], verbs: ["create"] },
    { apiGroups: [rbacGroup], resources: ["rolebindings", "roles"], verbs: [...read, ...write] },
  ];
}

/** What somebody needs who works in sandboxes and manages nothing: claims, talking to sandboxes, and what the published clients read. */
function sandboxUserRules(): PolicyRule[] {
  return [
    {
      apiGroups: [extensionsGroup],
      resources: ["sandboxclaims"],
      verbs: [...read, "create", "delete", "patch", "update"],
    },
    { apiGroups: [extensionsGroup], resources: ["sandboxtemplates", "sandboxwarmpools"], verbs: read },
    { apiGroups: [coreGroup], resources: ["sandboxes"], verbs: [...read, "patch"] },
    { apiGroups: [coreGroup], resources: ["sandboxes/connect"], verbs: ["create", "get"] },
    { apiGroups: [ownGroup], resources: ["sandboxsnapshots"], verbs: read },
    { apiGroups: [""], resources: ["pods", "pods/log", "services", "events"], verbs: read },
    { apiGroups: [""], resources: ["pods/exec", "pods/attach", "pods/portforward"], verbs: ["create", "get"] },
    { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: read },
  ];
}

function generalBindings(): ClusterRoleBinding[] {
  const everybody = [group(authenticatedGroup), group(unauthenticatedGroup)];
  return [
    binding("cluster-admin", "cluster-admin", [group(mastersGroup)]),
    binding("system:discovery", "system:discovery", [group(authenticatedGroup)]),
    binding("system:basic-user", "system:basic-user", [group(authenticatedGroup)]),
    binding("system:public-info-viewer", "system:public-info-viewer", everybody),
    binding("system:service-account-issuer-discovery", "system:service-account-issuer-discovery", [
      group("system:serviceaccounts"),
    ]),
    binding("system:monitoring", "system:monitoring", [group("system:monitoring")]),
  ];
}

function componentBindings(): ClusterRoleBinding[] {
  return componentRoles().flatMap(({ name, boundTo }) =>
    boundTo === undefined
      ? []
      : [binding(name, name, [boundTo.kind === "group" ? group(boundTo.name) : account(boundTo.name)])],
  );
}

function account(name: string): Subject {
  return { kind: "ServiceAccount", name, namespace: systemNamespace };
}
