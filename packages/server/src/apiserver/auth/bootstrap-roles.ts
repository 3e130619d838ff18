import type { ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject } from "@agent-sandbox/api";
import { authenticatedGroup, mastersGroup, unauthenticatedGroup } from "./authenticator.ts";
import { componentRoles } from "./component-roles.ts";
import { systemNamespace } from "./components.ts";
import { aggregatedRules } from "./rbac-index.ts";
import { userRoles } from "./user-roles.ts";

const rbacGroup = "rbac.authorization.k8s.io";
const rbacVersion = "rbac.authorization.k8s.io/v1";
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
    ...userRoles().map(({ name, rules, aggregatedTo }) =>
      clusterRole(name, rules, aggregatedTo === undefined ? {} : aggregateTo(aggregatedTo)),
    ),
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
