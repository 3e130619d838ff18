import { badRequest } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import { authenticatedGroup, unauthenticatedGroup } from "./authenticator.ts";
import type { Authorizer, ResourceAttributes } from "./authorizer.ts";
import { forbiddenError } from "./forbidden.ts";

/** Request headers with lower-case names; several values of one name as a list. */
export type HeaderValues = Readonly<Record<string, string | readonly string[] | undefined>>;

const extraPrefix = "impersonate-extra-";

/** Returns whom the request acts as: the caller, or whom its Impersonate headers name if the caller may. Throws ApiError. */
export function impersonatedUser(headers: HeaderValues, caller: UserInfo, authorizer: Authorizer): UserInfo {
  const username = singleValue(headers["impersonate-user"]);
  const groups = valuesOf(headers["impersonate-group"]);
  const uid = singleValue(headers["impersonate-uid"]);
  const extra = extraOf(headers);
  if (username === undefined || username === "") {
    if (groups.length === 0 && uid === undefined && extra.length === 0) return caller;
    throw badRequest("requested impersonation of groups, a uid or extra fields without impersonating a user");
  }
  const wanted = [
    userAttributes(username),
    ...groups.map((name) => impersonation({ resource: "groups", name })),
    ...(uid === undefined ? [] : [impersonation({ group: "authentication.k8s.io", resource: "uids", name: uid })]),
    ...extra.flatMap(([key, values]) =>
      values.map((name) =>
        impersonation({ group: "authentication.k8s.io", resource: "userextras", subresource: key, name }),
      ),
    ),
  ];
  for (const attributes of wanted) {
    const decision = authorizer.authorize(attributes, caller);
    if (decision.verdict !== "allow") throw forbiddenError(attributes, caller, decision);
  }
  return {
    username,
    groups: withDefaultGroups(username, groups),
    ...(uid === undefined ? {} : { uid }),
    ...(extra.length === 0 ? {} : { extra: Object.fromEntries(extra) }),
  };
}

/** Node joins repeated headers with a comma and a space; each part is authorised by itself, so that splitting them grants no more than the header as it was sent. */
function valuesOf(header: string | readonly string[] | undefined): readonly string[] {
  if (header === undefined) return [];
  return typeof header === "string" ? header.split(", ") : header;
}

function singleValue(header: string | readonly string[] | undefined): string | undefined {
  return typeof header === "string" ? header : header?.[0];
}

function extraOf(headers: HeaderValues): [string, readonly string[]][] {
  return Object.entries(headers)
    .filter(([name]) => name.startsWith(extraPrefix))
    .map(([name, value]) => [decodeKey(name.slice(extraPrefix.length)), valuesOf(value)]);
}

/** Keys are percent-encoded on the wire; one that is not validly encoded is taken literally, as Kubernetes does. */
function decodeKey(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}

function impersonation(
  part: Partial<ResourceAttributes> & Pick<ResourceAttributes, "resource" | "name">,
): ResourceAttributes {
  return { kind: "resource", verb: "impersonate", group: "", version: "", subresource: "", namespace: "", ...part };
}

function userAttributes(username: string): ResourceAttributes {
  const [, , namespace, name] = /^(system:serviceaccount:)([^:]+):([^:]+)$/.exec(username) ?? [];
  if (namespace === undefined || name === undefined) return impersonation({ resource: "users", name: username });
  return impersonation({ resource: "serviceaccounts", namespace, name });
}

/** A ServiceAccount without explicit groups gets its own; everybody is authenticated unless impersonated as anonymous. */
function withDefaultGroups(username: string, groups: readonly string[]): string[] {
  const own = /^system:serviceaccount:([^:]+):[^:]+$/.exec(username)?.[1];
  const base =
    own !== undefined && groups.length === 0
      ? ["system:serviceaccounts", `system:serviceaccounts:${own}`]
      : [...groups];
  const status = username === "system:anonymous" ? unauthenticatedGroup : authenticatedGroup;
  return base.includes(authenticatedGroup) || base.includes(unauthenticatedGroup) ? base : [...base, status];
}
