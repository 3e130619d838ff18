import {
  clusterRoleBindings,
  clusterRoles,
  type KubeObject,
  localVolumeDriver,
  type Namespace,
  namespaces,
  priorityClasses,
  type Resource,
  roleBindings,
  roles,
  runtimeClasses,
  serviceAccounts,
  storageClasses,
} from "@agent-sandbox/api";
import { bootstrapRbac } from "./bootstrap-roles.ts";
import { componentNames, systemNamespace } from "./components.ts";

/** An object that a fresh engine has, with where it goes. */
export interface BootstrapObject {
  readonly resource: Resource<KubeObject>;
  readonly object: KubeObject;
  /** `keep`: made once, then the user's. `renew`: written anew at every start, because a release may change it. */
  readonly policy: "keep" | "renew";
}

/** Everything a fresh engine has, in the order in which it can be made. Main writes it as a member of `system:masters`. */
export function bootstrapObjects(): BootstrapObject[] {
  const rbac = bootstrapRbac();
  return [
    ...["default", "kube-system", "kube-public", "kube-node-lease", systemNamespace].map((name) =>
      keep(namespaces, namespace(name)),
    ),
    ...rbac.clusterRoles.map((object) => renew(clusterRoles, object)),
    ...rbac.clusterRoleBindings.map((object) => renew(clusterRoleBindings, object)),
    ...rbac.roles.map((object) => renew(roles, object)),
    ...rbac.roleBindings.map((object) => renew(roleBindings, object)),
    ...componentNames.map((name) =>
      keep(serviceAccounts, {
        apiVersion: "v1",
        kind: "ServiceAccount",
        metadata: { namespace: systemNamespace, name },
      }),
    ),
    ...priorities(),
    ...runtimes(),
    keep(storageClasses, {
      apiVersion: "storage.k8s.io/v1",
      kind: "StorageClass",
      metadata: { name: "local", annotations: { "storageclass.kubernetes.io/is-default-class": "true" } },
      provisioner: localVolumeDriver,
      reclaimPolicy: "Delete",
      volumeBindingMode: "Immediate",
      allowVolumeExpansion: true,
    }),
  ];
}

function keep<T extends KubeObject>(resource: Resource<T>, object: T): BootstrapObject {
  return { resource: resource as Resource<KubeObject>, object, policy: "keep" };
}

function renew<T extends KubeObject>(resource: Resource<T>, object: T): BootstrapObject {
  return { ...keep(resource, object), policy: "renew" };
}

function namespace(name: string): Namespace {
  return { apiVersion: "v1", kind: "Namespace", metadata: { name } };
}

function priorities(): BootstrapObject[] {
  const priority = (name: string, value: number, description: string) =>
    keep(priorityClasses, {
      apiVersion: "scheduling.k8s.io/v1",
      kind: "PriorityClass",
      metadata: { name },
      value,
      description,
    });
  return [
    priority(
      "system-cluster-critical",
      2_000_000_000,
      "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    priority(
      "system-node-critical",
      2_000_001_000,
      "Used for system critical pods that must not be moved from their current node.",
    ),
  ];
}

/** A class says only which runtime is meant; whether the operator allows it and whether it is there, the node says. */
function runtimes(): BootstrapObject[] {
  const runtime = (name: string, handler: string) =>
    keep(runtimeClasses, { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler });
  return [runtime("gvisor", "runsc"), runtime("runc", "runc")];
}
