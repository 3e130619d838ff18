import { stringify } from "yaml";
import { componentRoles } from "../../packages/server/src/apiserver/auth/component-roles.ts";
import { ownUserRoles } from "../../packages/server/src/apiserver/auth/user-roles.ts";

const apiVersion = "rbac.authorization.k8s.io/v1";
const partOf = { "app.kubernetes.io/part-of": "agent-sandbox" };

/** Accounts of the components that run as Pods in a cluster; the others are parts of a cluster there. */
const shippedAccounts = ["agent-sandbox-controller", "sandbox-router"];

/** The manifests of the ClusterRoles that clusters get, with the bindings of those that our components hold. */
export function printClusterRoles(): string {
  const shipped = componentRoles().flatMap(({ name, rules, boundTo }) => {
    if (boundTo?.kind !== "account" || !shippedAccounts.includes(boundTo.name)) return [];
    const labels = { "app.kubernetes.io/name": boundTo.name, ...partOf };
    return [
      { apiVersion, kind: "ClusterRole", metadata: { name, labels }, rules },
      {
        apiVersion,
        kind: "ClusterRoleBinding",
        metadata: { name, labels },
        roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
        subjects: [{ kind: "ServiceAccount", name: boundTo.name, namespace: "agent-sandbox-system" }],
      },
    ];
  });
  const people = ownUserRoles().map(({ name, rules, aggregatedTo }) => {
    const labels = { ...partOf, [`rbac.authorization.k8s.io/aggregate-to-${aggregatedTo}`]: "true" };
    return { apiVersion, kind: "ClusterRole", metadata: { name, labels }, rules };
  });
  const head = "# Written by `npm run generate` from component-roles.ts and user-roles.ts of the API server.\n";
  const print = (object: object): string => stringify(object, { lineWidth: 0, aliasDuplicateObjects: false });
  return head + [...shipped, ...people].map(print).join("---\n");
}
