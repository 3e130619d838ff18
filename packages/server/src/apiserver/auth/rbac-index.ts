import type {
  ClusterRole,
  ClusterRoleBinding,
  PolicyRule,
  Role,
  RoleBinding,
  RoleRef,
  Subject,
} from "@agent-sandbox/api";
import { keyOf, labelSelectorOf, matchesLabels, namespacedKey } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";

/** One binding as seen from a subject. */
export interface Grant {
  /** Empty when it holds everywhere. */
  readonly namespace: string;
  readonly roleRef: RoleRef;
  readonly subject: Subject;
  /** `kind "namespace/name"` of the binding, for reasons. */
  readonly bindingText: string;
}

/** Roles and bindings in memory, found by subject. Invariant: holds exactly what the last change of each object said. */
export class RbacIndex {
  readonly #roles = new Map<string, readonly PolicyRule[]>();
  readonly #clusterRoles = new Map<string, ClusterRole>();
  readonly #aggregated = new Map<string, readonly PolicyRule[]>();
  readonly #bindings = new Map<string, readonly [string, Grant][]>();
  readonly #grants = new Map<string, Set<Grant>>();

  /** Takes a change of a Role. */
  changeRole(role: Role, deleted: boolean): void {
    const key = keyOf(role);
    if (deleted) this.#roles.delete(key);
    else this.#roles.set(key, role.rules ?? []);
  }

  /** Takes a change of a ClusterRole; roles made of others by label follow at their next use. */
  changeClusterRole(role: ClusterRole, deleted: boolean): void {
    if (deleted) this.#clusterRoles.delete(role.metadata.name ?? "");
    else this.#clusterRoles.set(role.metadata.name ?? "", role);
    this.#aggregated.clear();
  }

  /** Takes a change of a RoleBinding or ClusterRoleBinding. */
  changeBinding(binding: RoleBinding | ClusterRoleBinding, deleted: boolean): void {
    const { namespace = "", name } = binding.metadata;
    const id = namespacedKey(namespace, name);
    for (const [key, grant] of this.#bindings.get(id) ?? []) this.#grants.get(key)?.delete(grant);
    this.#bindings.delete(id);
    if (deleted) return;
    const bindingText = `${binding.kind} "${namespace === "" ? name : id}"`;
    const entries = (binding.subjects ?? []).map((subject): [string, Grant] => [
      subjectKey(subject, namespace),
      { namespace, roleRef: binding.roleRef, subject, bindingText },
    ]);
    for (const [key, grant] of entries) {
      const grants = this.#grants.get(key) ?? new Set();
      this.#grants.set(key, grants.add(grant));
    }
    this.#bindings.set(id, entries);
  }

  /** Every grant of a user that holds in the namespace (empty: at cluster scope only). */
  *grantsOf(user: UserInfo, namespace: string): Generator<Grant> {
    yield* this.#grantsAt(`User:${user.username}`, namespace);
    for (const group of user.groups) yield* this.#grantsAt(`Group:${group}`, namespace);
  }

  *#grantsAt(key: string, namespace: string): Generator<Grant> {
    for (const grant of this.#grants.get(key) ?? []) {
      if (grant.namespace === "" || grant.namespace === namespace) yield grant;
    }
  }

  /** The rules of a role, or undefined when there is no such role. */
  rulesOf(roleRef: RoleRef, namespace: string): readonly PolicyRule[] | undefined {
    if (roleRef.kind === "Role") return this.#roles.get(namespacedKey(namespace, roleRef.name));
    const role = this.#clusterRoles.get(roleRef.name);
    if (role?.aggregationRule === undefined) return role === undefined ? undefined : (role.rules ?? []);
    const known = this.#aggregated.get(roleRef.name);
    if (known !== undefined) return known;
    const rules = aggregatedRules(role, this.#clusterRoles.values());
    this.#aggregated.set(roleRef.name, rules);
    return rules;
  }
}

/** A ServiceAccount is bound by the user name that its tokens carry. */
function subjectKey(subject: Subject, bindingNamespace: string): string {
  if (subject.kind !== "ServiceAccount") return `${subject.kind}:${subject.name}`;
  return `User:system:serviceaccount:${subject.namespace ?? bindingNamespace}:${subject.name}`;
}

/** The union of the rules of every role that the aggregation rule selects, without doubles, in order of name. */
export function aggregatedRules(role: ClusterRole, all: Iterable<ClusterRole>): PolicyRule[] {
  const selectors = role.aggregationRule?.clusterRoleSelectors ?? [];
  const chosen = [...all]
    .filter((other) => other.metadata.name !== role.metadata.name)
    .filter((other) =>
      selectors.some((selector) => matchesLabels(labelSelectorOf(selector), other.metadata.labels ?? {})),
    )
    .sort((a, b) => ((a.metadata.name ?? "") < (b.metadata.name ?? "") ? -1 : 1));
  const unique = new Map(chosen.flatMap((other) => other.rules ?? []).map((rule) => [JSON.stringify(rule), rule]));
  return [...unique.values()];
}
