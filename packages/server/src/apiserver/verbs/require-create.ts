import { forbiddenError } from "../auth/forbidden.ts";
import type { RequestScope } from "../scope/scope.ts";

/** For an update or an apply that turns out to create: the request was authorised for another verb. Throws Forbidden. */
export function requireCreate(scope: RequestScope): void {
  const { server, definition, version, namespace, name, user } = scope;
  const { group, resource } = definition;
  const target = { group, version: version.name, resource, subresource: "", namespace, name };
  const attributes = { kind: "resource", verb: "create", ...target } as const;
  const decision = server.authorizer.authorize(attributes, user);
  if (decision.verdict !== "allow") throw forbiddenError(attributes, user, decision);
}
