/** One built-in kind that the embedded API server serves, with the facts of discovery that no schema carries. */
export interface ServedKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  /** The plural of the URL. Absent for kinds that are only bodies of other resources. */
  readonly resource?: string;
  readonly namespaced: boolean;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  /** Subresources besides the object itself, as their last URL segment. */
  readonly subresources?: readonly string[];
  /** "object" is stored; "review" is answered and never stored; "body" only travels inside requests and answers. */
  readonly role: "object" | "review" | "body";
  /** Definition name in the OpenAPI document. */
  readonly definition: string;
}

const core = (kind: string, rest: Partial<ServedKind> = {}): ServedKind => ({
  group: "",
  version: "v1",
  kind,
  namespaced: true,
  role: "object",
  definition: `io.k8s.api.core.v1.${kind}`,
  ...rest,
});

const grouped =
  (group: string, path: string) =>
  (kind: string, rest: Partial<ServedKind> = {}): ServedKind => ({
    group,
    version: "v1",
    kind,
    namespaced: true,
    role: "object",
    definition: `${path}.v1.${kind}`,
    ...rest,
  });

const authentication = grouped("authentication.k8s.io", "io.k8s.api.authentication");
const authorization = grouped("authorization.k8s.io", "io.k8s.api.authorization");
const rbac = grouped("rbac.authorization.k8s.io", "io.k8s.api.rbac");
const meta = grouped("", "io.k8s.apimachinery.pkg.apis.meta");
const metrics = (kind: string, rest: Partial<ServedKind>): ServedKind => ({
  group: "metrics.k8s.io",
  version: "v1beta1",
  kind,
  namespaced: true,
  role: "review",
  definition: `io.k8s.metrics.v1beta1.${kind}`,
  ...rest,
});

/** Every built-in kind of the embedded API server; the order is the order of discovery. */
export const servedKinds: readonly ServedKind[] = [
  core("Binding", { resource: "bindings", role: "review" }),
  core("ConfigMap", { resource: "configmaps", shortNames: ["cm"] }),
  core("Event", { resource: "events", shortNames: ["ev"] }),
  core("LimitRange", { resource: "limitranges", shortNames: ["limits"] }),
  core("Namespace", {
    resource: "namespaces",
    namespaced: false,
    shortNames: ["ns"],
    subresources: ["finalize", "status"],
  }),
  core("Node", { resource: "nodes", namespaced: false, shortNames: ["no"], subresources: ["proxy", "status"] }),
  core("PersistentVolumeClaim", {
    resource: "persistentvolumeclaims",
    shortNames: ["pvc"],
    subresources: ["status"],
  }),
  core("PersistentVolume", {
    resource: "persistentvolumes",
    namespaced: false,
    shortNames: ["pv"],
    subresources: ["status"],
  }),
  core("Pod", {
    resource: "pods",
    shortNames: ["po"],
    categories: ["all"],
    subresources: [
      "attach",
      "binding",
      "ephemeralcontainers",
      "eviction",
      "exec",
      "log",
      "portforward",
      "proxy",
      "resize",
      "status",
    ],
  }),
  core("ResourceQuota", { resource: "resourcequotas", shortNames: ["quota"], subresources: ["status"] }),
  core("Secret", { resource: "secrets" }),
  core("ServiceAccount", { resource: "serviceaccounts", shortNames: ["sa"], subresources: ["token"] }),
  core("Service", {
    resource: "services",
    shortNames: ["svc"],
    categories: ["all"],
    subresources: ["proxy", "status"],
  }),
  grouped("apiextensions.k8s.io", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions")("CustomResourceDefinition", {
    resource: "customresourcedefinitions",
    namespaced: false,
    shortNames: ["crd", "crds"],
    categories: ["api-extensions"],
    subresources: ["status"],
  }),
  authentication("SelfSubjectReview", { resource: "selfsubjectreviews", namespaced: false, role: "review" }),
  authentication("TokenReview", { resource: "tokenreviews", namespaced: false, role: "review" }),
  authentication("TokenRequest", { role: "body" }),
  authorization("LocalSubjectAccessReview", { resource: "localsubjectaccessreviews", role: "review" }),
  authorization("SelfSubjectAccessReview", { resource: "selfsubjectaccessreviews", namespaced: false, role: "review" }),
  authorization("SelfSubjectRulesReview", { resource: "selfsubjectrulesreviews", namespaced: false, role: "review" }),
  authorization("SubjectAccessReview", { resource: "subjectaccessreviews", namespaced: false, role: "review" }),
  grouped("autoscaling", "io.k8s.api.autoscaling")("Scale", { role: "body" }),
  grouped("coordination.k8s.io", "io.k8s.api.coordination")("Lease", { resource: "leases" }),
  grouped("discovery.k8s.io", "io.k8s.api.discovery")("EndpointSlice", { resource: "endpointslices" }),
  grouped("events.k8s.io", "io.k8s.api.events")("Event", { resource: "events", shortNames: ["ev"] }),
  metrics("NodeMetrics", { resource: "nodes", namespaced: false }),
  metrics("PodMetrics", { resource: "pods" }),
  grouped("networking.k8s.io", "io.k8s.api.networking")("NetworkPolicy", {
    resource: "networkpolicies",
    shortNames: ["netpol"],
  }),
  grouped("node.k8s.io", "io.k8s.api.node")("RuntimeClass", { resource: "runtimeclasses", namespaced: false }),
  grouped("policy", "io.k8s.api.policy")("Eviction", { role: "body" }),
  rbac("ClusterRoleBinding", { resource: "clusterrolebindings", namespaced: false }),
  rbac("ClusterRole", { resource: "clusterroles", namespaced: false }),
  rbac("RoleBinding", { resource: "rolebindings" }),
  rbac("Role", { resource: "roles" }),
  grouped("scheduling.k8s.io", "io.k8s.api.scheduling")("PriorityClass", {
    resource: "priorityclasses",
    namespaced: false,
    shortNames: ["pc"],
  }),
  grouped("storage.k8s.io", "io.k8s.api.storage")("StorageClass", {
    resource: "storageclasses",
    namespaced: false,
    shortNames: ["sc"],
  }),
  meta("DeleteOptions", { role: "body" }),
  meta("Status", { role: "body" }),
];
