import type * as builtin from "./builtin.gen.ts";
import type {
  Sandbox,
  SandboxArchive,
  SandboxClaim,
  SandboxSnapshot,
  SandboxTemplate,
  SandboxWarmPool,
} from "./kinds.gen.ts";
import { coreGroup, extensionsGroup, ownGroup } from "./labels.ts";
import type { KubeObject } from "./meta.ts";

/** Where objects of one kind live in the API; `T` is their type. */
export interface Resource<T extends KubeObject> {
  readonly group: string;
  readonly version: string;
  /** The plural of the URL. */
  readonly resource: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** Never present: it only ties the constant to its type, so that clients infer it. */
  readonly objectType?: T;
}

/** `v1` or `group/version`. */
export function apiVersionOf(resource: Pick<Resource<KubeObject>, "group" | "version">): string {
  return resource.group === "" ? resource.version : `${resource.group}/${resource.version}`;
}

/** The URL path of a resource, or of one object of it. */
export function pathOf(resource: Resource<KubeObject>, key: { namespace?: string; name?: string } = {}): string {
  const root = resource.group === "" ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`;
  const scope = key.namespace ? `/namespaces/${encodeURIComponent(key.namespace)}` : "";
  const name = key.name === undefined ? "" : `/${encodeURIComponent(key.name)}`;
  return `${root}${scope}/${resource.resource}${name}`;
}

/** Group and version of an apiVersion string. */
export function parseApiVersion(apiVersion: string): { group: string; version: string } {
  const slash = apiVersion.indexOf("/");
  return slash < 0
    ? { group: "", version: apiVersion }
    : { group: apiVersion.slice(0, slash), version: apiVersion.slice(slash + 1) };
}

function namespaced<T extends KubeObject>(group: string, kind: string, resource: string, version = "v1"): Resource<T> {
  return { group, version, kind, resource, namespaced: true };
}

function clusterScoped<T extends KubeObject>(group: string, kind: string, resource: string): Resource<T> {
  return { group, version: "v1", kind, resource, namespaced: false };
}

const rbacGroup = "rbac.authorization.k8s.io";

/** Pods. */
export const pods = namespaced<builtin.Pod>("", "Pod", "pods");
/** Services. */
export const services = namespaced<builtin.Service>("", "Service", "services");
/** ConfigMaps. */
export const configMaps = namespaced<builtin.ConfigMap>("", "ConfigMap", "configmaps");
/** Secrets. */
export const secrets = namespaced<builtin.Secret>("", "Secret", "secrets");
/** ServiceAccounts. */
export const serviceAccounts = namespaced<builtin.ServiceAccount>("", "ServiceAccount", "serviceaccounts");
/** Events of the core group. */
export const coreEvents = namespaced<builtin.Event>("", "Event", "events");
/** LimitRanges. */
export const limitRanges = namespaced<builtin.LimitRange>("", "LimitRange", "limitranges");
/** ResourceQuotas. */
export const resourceQuotas = namespaced<builtin.ResourceQuota>("", "ResourceQuota", "resourcequotas");
/** PersistentVolumeClaims. */
export const persistentVolumeClaims = namespaced<builtin.PersistentVolumeClaim>(
  "",
  "PersistentVolumeClaim",
  "persistentvolumeclaims",
);
/** PersistentVolumes. */
export const persistentVolumes = clusterScoped<builtin.PersistentVolume>("", "PersistentVolume", "persistentvolumes");
/** Namespaces. */
export const namespaces = clusterScoped<builtin.Namespace>("", "Namespace", "namespaces");
/** Nodes. */
export const nodes = clusterScoped<builtin.Node>("", "Node", "nodes");
/** CustomResourceDefinitions. */
export const customResourceDefinitions = clusterScoped<builtin.CustomResourceDefinition>(
  "apiextensions.k8s.io",
  "CustomResourceDefinition",
  "customresourcedefinitions",
);
/** Leases. */
export const leases = namespaced<builtin.Lease>("coordination.k8s.io", "Lease", "leases");
/** EndpointSlices. */
export const endpointSlices = namespaced<builtin.EndpointSlice>("discovery.k8s.io", "EndpointSlice", "endpointslices");
/** Events of events.k8s.io, the group that is written. */
export const events = namespaced<builtin.EventsEvent>("events.k8s.io", "Event", "events");
/** NetworkPolicies. */
export const networkPolicies = namespaced<builtin.NetworkPolicy>(
  "networking.k8s.io",
  "NetworkPolicy",
  "networkpolicies",
);
/** RuntimeClasses. */
export const runtimeClasses = clusterScoped<builtin.RuntimeClass>("node.k8s.io", "RuntimeClass", "runtimeclasses");
/** PriorityClasses. */
export const priorityClasses = clusterScoped<builtin.PriorityClass>(
  "scheduling.k8s.io",
  "PriorityClass",
  "priorityclasses",
);
/** StorageClasses. */
export const storageClasses = clusterScoped<builtin.StorageClass>("storage.k8s.io", "StorageClass", "storageclasses");
/** Roles. */
export const roles = namespaced<builtin.Role>(rbacGroup, "Role", "roles");
/** RoleBindings. */
export const roleBindings = namespaced<builtin.RoleBinding>(rbacGroup, "RoleBinding", "rolebindings");
/** ClusterRoles. */
export const clusterRoles = clusterScoped<builtin.ClusterRole>(rbacGroup, "ClusterRole", "clusterroles");
/** ClusterRoleBindings. */
export const clusterRoleBindings = clusterScoped<builtin.ClusterRoleBinding>(
  rbacGroup,
  "ClusterRoleBinding",
  "clusterrolebindings",
);
/** TokenReviews. */
export const tokenReviews = clusterScoped<builtin.TokenReview>("authentication.k8s.io", "TokenReview", "tokenreviews");
/** SubjectAccessReviews. */
export const subjectAccessReviews = clusterScoped<builtin.SubjectAccessReview>(
  "authorization.k8s.io",
  "SubjectAccessReview",
  "subjectaccessreviews",
);
/** Sandboxes. */
export const sandboxes = namespaced<Sandbox>(coreGroup, "Sandbox", "sandboxes", "v1beta1");
/** SandboxTemplates. */
export const sandboxTemplates = namespaced<SandboxTemplate>(
  extensionsGroup,
  "SandboxTemplate",
  "sandboxtemplates",
  "v1beta1",
);
/** SandboxClaims. */
export const sandboxClaims = namespaced<SandboxClaim>(extensionsGroup, "SandboxClaim", "sandboxclaims", "v1beta1");
/** SandboxWarmPools. */
export const sandboxWarmPools = namespaced<SandboxWarmPool>(
  extensionsGroup,
  "SandboxWarmPool",
  "sandboxwarmpools",
  "v1beta1",
);
/** SandboxSnapshots. */
export const sandboxSnapshots = namespaced<SandboxSnapshot>(
  ownGroup,
  "SandboxSnapshot",
  "sandboxsnapshots",
  "v1alpha1",
);
/** SandboxArchives. */
export const sandboxArchives = namespaced<SandboxArchive>(ownGroup, "SandboxArchive", "sandboxarchives", "v1alpha1");
