import {
  type ClusterRole,
  forbidden,
  type KubeObject,
  type PolicyRule,
  type RoleBinding,
  type RoleRef,
} from "@agent-sandbox/api";
import { mastersGroup } from "../auth/authenticator.ts";
import type { RbacAuthorizer } from "../auth/rbac-authorizer.ts";
import { ruleText, uncoveredRules } from "../auth/rbac-rules.ts";
import type { UserInfo } from "../request/user-info.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

const rbacGroup = "rbac.authorization.k8s.io";
const roleResources = new Set(["roles", "clusterroles"]);
const bindingResources = new Set(["rolebindings", "clusterrolebindings"]);

/** A user grants only rights that the user holds, unless it has the verb `escalate` on the role or `bind` on what is bound. */
export class RbacEscalation implements Admission {
  readonly name = "RBACEscalation";
  readonly #authorizer: RbacAuthorizer;

  constructor(authorizer: RbacAuthorizer) {
    this.#authorizer = authorizer;
  }

  handles({ verb, group, resource, subresource, user }: AdmissionAttributes): boolean {
    if (group !== rbacGroup || subresource !== "" || (verb !== "create" && verb !== "update")) return false;
    return !user.groups.includes(mastersGroup) && (roleResources.has(resource) || bindingResources.has(resource));
  }

  validate(attributes: AdmissionAttributes): void {
    const { resource, object, namespace, user } = attributes;
    if (object === undefined) return;
    if (roleResources.has(resource)) {
      const role = object as ClusterRole;
      // An aggregated role takes rules from roles that other users may write, so it counts as a grant of everything.
      const rules = role.aggregationRule === undefined ? (role.rules ?? []) : anything;
      if (!this.#may("escalate", attributes, user)) this.#requireCovered(attributes, rules, namespace);
      return;
    }
    const { roleRef } = object as KubeObject & Pick<RoleBinding, "roleRef">;
    if (this.#mayBind(roleRef, namespace, user)) return;
    this.#requireCovered(attributes, this.#authorizer.rulesOfRole(roleRef, namespace) ?? [], namespace);
  }

  #may(verb: string, { resource, namespace, name }: AdmissionAttributes, user: UserInfo): boolean {
    const attributes = {
      kind: "resource",
      verb,
      group: rbacGroup,
      version: "v1",
      resource,
      subresource: "",
      namespace,
      name,
    } as const;
    return this.#authorizer.authorize(attributes, user).verdict === "allow";
  }

  #mayBind(roleRef: RoleRef, namespace: string, user: UserInfo): boolean {
    const resource = roleRef.kind === "Role" ? "roles" : "clusterroles";
    const attributes = {
      kind: "resource",
      verb: "bind",
      group: rbacGroup,
      version: "v1",
      resource,
      subresource: "",
      namespace,
      name: roleRef.name,
    } as const;
    return this.#authorizer.authorize(attributes, user).verdict === "allow";
  }

  #requireCovered(
    { resource, name, user }: AdmissionAttributes,
    rules: readonly PolicyRule[],
    namespace: string,
  ): void {
    const missing = uncoveredRules(this.#authorizer.rulesFor(user, namespace), rules);
    if (missing.length === 0) return;
    const who = `user ${JSON.stringify(user.username)} (groups=${JSON.stringify(user.groups)})`;
    const why = `${who} is attempting to grant RBAC permissions not currently held:\n${missing.map(ruleText).join("\n")}`;
    throw forbidden({ group: rbacGroup, resource, name }, why);
  }
}

const anything: readonly PolicyRule[] = [
  { apiGroups: ["*"], resources: ["*"], verbs: ["*"] },
  { nonResourceURLs: ["*"], verbs: ["*"] },
];
