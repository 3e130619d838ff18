import { ApiError } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import type { AuthorizationAttributes, Decision } from "./authorizer.ts";

/** The 403 that Kubernetes gives for a refused request, word for word. */
export function forbiddenError(a: AuthorizationAttributes, user: UserInfo, decision: Decision): ApiError {
  const why = decision.reason === "" ? "" : `: ${decision.reason}`;
  const subject = forbiddenSubject(a);
  const message = `${subject === "" ? "forbidden" : `${subject} is forbidden`}: User ${quote(user.username)} cannot ${forbiddenAct(a)}${why}`;
  if (a.kind === "non-resource") return new ApiError("Forbidden", message, { details: {} });
  const group = a.group === "" ? {} : { group: a.group };
  return new ApiError("Forbidden", message, { details: { name: a.name, ...group, kind: a.resource } });
}

function forbiddenSubject(a: AuthorizationAttributes): string {
  if (a.kind === "non-resource") return "";
  const resource = a.group === "" ? a.resource : `${a.resource}.${a.group}`;
  return a.name === "" ? resource : `${resource} ${quote(a.name)}`;
}

function forbiddenAct(a: AuthorizationAttributes): string {
  if (a.kind === "non-resource") return `${a.verb} path ${quote(a.path)}`;
  const resource = a.subresource === "" ? a.resource : `${a.resource}/${a.subresource}`;
  const scope = a.namespace === "" ? "at the cluster scope" : `in the namespace ${quote(a.namespace)}`;
  return `${a.verb} resource ${quote(resource)} in API group ${quote(a.group)} ${scope}`;
}

function quote(text: string): string {
  return JSON.stringify(text);
}
