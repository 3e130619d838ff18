import type { Json } from "./api-call.ts";

/** Paths of resources in the case's namespace. */
export const at = {
  configMaps: "/api/v1/namespaces/$NS/configmaps",
  secrets: "/api/v1/namespaces/$NS/secrets",
  pods: "/api/v1/namespaces/$NS/pods",
  services: "/api/v1/namespaces/$NS/services",
  serviceAccounts: "/api/v1/namespaces/$NS/serviceaccounts",
  claims: "/api/v1/namespaces/$NS/persistentvolumeclaims",
  quotas: "/api/v1/namespaces/$NS/resourcequotas",
  limits: "/api/v1/namespaces/$NS/limitranges",
  events: "/api/v1/namespaces/$NS/events",
  leases: "/apis/coordination.k8s.io/v1/namespaces/$NS/leases",
  policies: "/apis/networking.k8s.io/v1/namespaces/$NS/networkpolicies",
  roles: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/roles",
  roleBindings: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/rolebindings",
  clusterRoles: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  clusterRoleBindings: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
  widgets: "/apis/conformance.test/v1/namespaces/$NS/widgets",
  rules: "/apis/conformance.test/v1/namespaces/$NS/rules",
  sandboxes: "/apis/agents.x-k8s.io/v1beta1/namespaces/$NS/sandboxes",
  templates: "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/$NS/sandboxtemplates",
  sandboxClaims: "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/$NS/sandboxclaims",
  pools: "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/$NS/sandboxwarmpools",
  crds: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
} as const;

/** The path with the namespace of a case that is not a script. */
export function inNamespace(path: string, namespace: string): string {
  return path.replace("$NS", namespace);
}

/** A ConfigMap. */
export function configMap(name: string, content: Json = { key: "value" }, metadata: Json = {}): Json {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, ...metadata }, data: content };
}

/** A Pod that passes validation. */
export function pod(name: string, spec: Json = {}, metadata: Json = {}): Json {
  const containers = [{ name: "main", image: "example.com/app:1" }];
  return { apiVersion: "v1", kind: "Pod", metadata: { name, ...metadata }, spec: { containers, ...spec } };
}

/** A Service with one port. */
export function service(name: string, spec: Json = {}): Json {
  const ports = [{ port: 80 }];
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec: { selector: { app: name }, ports, ...spec } };
}

/** A Sandbox that passes validation. */
export function sandbox(name: string, spec: Json = {}, metadata: Json = {}): Json {
  const podTemplate = { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } };
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, ...metadata },
    spec: { podTemplate, ...spec },
  };
}

/** An object of the suite's own kind. */
export function widget(name: string, spec: Json = {}, metadata: Json = {}): Json {
  return { apiVersion: "conformance.test/v1", kind: "Widget", metadata: { name, ...metadata }, spec };
}

/** A Role or ClusterRole. */
export function role(kind: "Role" | "ClusterRole", name: string, rules: Json): Json {
  return { apiVersion: "rbac.authorization.k8s.io/v1", kind, metadata: { name }, rules };
}

/** A binding of one user to a role. */
export function binding(
  kind: "RoleBinding" | "ClusterRoleBinding",
  name: string,
  user: string,
  roleRef: [string, string],
): Json {
  const apiGroup = "rbac.authorization.k8s.io";
  return {
    apiVersion: `${apiGroup}/v1`,
    kind,
    metadata: { name },
    subjects: [{ kind: "User", name: user, apiGroup }],
    roleRef: { apiGroup, kind: roleRef[0], name: roleRef[1] },
  };
}
