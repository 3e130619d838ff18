import {
  clusterRoleBindings,
  clusterRoles,
  type PolicyRule,
  type RoleRef,
  roleBindings,
  roles,
} from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import { mastersGroup } from "./authenticator.ts";
import type { AuthorizationAttributes, Authorizer, Decision } from "./authorizer.ts";
import type { NodeReads } from "./node-reads.ts";
import type { ObjectReader } from "./object-reader.ts";
import type { Grant, RbacIndex } from "./rbac-index.ts";
import { ruleAllows } from "./rbac-rules.ts";

/** Decides by Role, ClusterRole and their bindings. */
export class RbacAuthorizer implements Authorizer {
  readonly #index: RbacIndex;

  readonly #nodeReads: NodeReads | undefined;

  /** With `nodeReads`, what nodes read of secrets and the like is decided by their pods and not by roles. */
  constructor(index: RbacIndex, nodeReads?: NodeReads) {
    this.#index = index;
    this.#nodeReads = nodeReads;
  }

  authorize(attributes: AuthorizationAttributes, user: UserInfo): Decision {
    if (user.groups.includes(mastersGroup)) return { verdict: "allow", reason: `member of group "${mastersGroup}"` };
    const ofNode = this.#nodeReads?.decide(attributes, user);
    if (ofNode !== undefined) return ofNode;
    const namespace = attributes.kind === "resource" ? attributes.namespace : "";
    const missing: string[] = [];
    for (const grant of this.#index.grantsOf(user, namespace)) {
      const rules = this.#index.rulesOf(grant.roleRef, grant.namespace);
      if (rules === undefined) missing.push(missingRoleText(grant.roleRef));
      else if (rules.some((rule) => ruleAllows(rule, attributes)))
        return { verdict: "allow", reason: allowedBy(grant) };
    }
    const reason = missing.length === 0 ? "" : `RBAC: ${[...new Set(missing)].join(", ")}`;
    return { verdict: "no-opinion", reason };
  }

  /** Every rule the user holds in the namespace (empty: at cluster scope). */
  rulesFor(user: UserInfo, namespace: string): PolicyRule[] {
    const rules = [...this.#index.grantsOf(user, namespace)].flatMap(
      (grant) => this.#index.rulesOf(grant.roleRef, grant.namespace) ?? [],
    );
    return user.groups.includes(mastersGroup) ? [...everything, ...rules] : rules;
  }

  /** The rules of a role, or undefined when there is none. */
  rulesOfRole(roleRef: RoleRef, namespace: string): readonly PolicyRule[] | undefined {
    return this.#index.rulesOf(roleRef, namespace);
  }
}

const everything: readonly PolicyRule[] = [
  { apiGroups: ["*"], resources: ["*"], verbs: ["*"] },
  { nonResourceURLs: ["*"], verbs: ["*"] },
];

function allowedBy({ bindingText, roleRef, subject }: Grant): string {
  const who = subject.kind === "ServiceAccount" ? `${subject.name}/${subject.namespace}` : subject.name;
  return `RBAC: allowed by ${bindingText} of ${roleRef.kind} "${roleRef.name}" to ${subject.kind} "${who}"`;
}

function missingRoleText(roleRef: RoleRef): string {
  return `${roleRef.kind.toLowerCase()}.rbac.authorization.k8s.io "${roleRef.name}" not found`;
}

/** Keeps an index as the stored roles and bindings are, until disposed; resolves when the present ones are in. */
export async function followRbac(index: RbacIndex, reader: ObjectReader): Promise<Disposable> {
  const subscriptions = [
    await reader.subscribe(roles, ({ object, deleted }) => index.changeRole(object, deleted)),
    await reader.subscribe(clusterRoles, ({ object, deleted }) => index.changeClusterRole(object, deleted)),
    await reader.subscribe(roleBindings, ({ object, deleted }) => index.changeBinding(object, deleted)),
    await reader.subscribe(clusterRoleBindings, ({ object, deleted }) => index.changeBinding(object, deleted)),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}
