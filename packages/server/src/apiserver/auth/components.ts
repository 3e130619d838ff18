import type { UserInfo } from "../request/user-info.ts";
import { serviceAccountUser } from "./service-account-tokens.ts";

/** Where our components live on either engine. */
export const systemNamespace = "agent-sandbox-system";

/** The ServiceAccounts of our components; the roles of the same names are in bootstrap-roles.ts. */
export const componentNames = ["agent-sandbox-controller", "sandbox-router", "agent-sandbox-standins"] as const;

/** One component with a ServiceAccount. */
export type ComponentName = (typeof componentNames)[number];

/** Whom a component acts as: the user of its ServiceAccount, in process as on a cluster. */
export function componentUser(name: ComponentName): UserInfo {
  return serviceAccountUser(systemNamespace, name);
}

/** Whom a node agent acts as. */
export function nodeUser(nodeName: string): UserInfo {
  return { username: `system:node:${nodeName}`, groups: ["system:nodes", "system:authenticated"] };
}

/** Whom the owner of the machine acts as: the identity in the kubeconfig that `up` writes. Exported for tests. */
export const adminUser: UserInfo = { username: "kubernetes-admin", groups: ["system:masters", "system:authenticated"] };
