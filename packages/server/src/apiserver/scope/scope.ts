import type { ResourceDefinition, VersionDefinition } from "../registry/resource-definition.ts";
import type { ApiRequest } from "../request/api-request.ts";
import type { AnswerFormat } from "../request/media-type.ts";
import type { UserInfo } from "../request/user-info.ts";
import type { ServerParts } from "./server-parts.ts";

/** Everything one request to a stored kind knows; made once, passed down. */
export interface RequestScope {
  readonly server: ServerParts;
  readonly request: ApiRequest;
  readonly query: URLSearchParams;
  readonly user: UserInfo;
  readonly definition: ResourceDefinition;
  readonly version: VersionDefinition;
  /** Empty for cluster-scoped kinds and for requests across all namespaces. */
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string;
  readonly rest: string;
  readonly format: AnswerFormat;
  readonly nowMs: number;
  readonly dryRun: boolean;
  /** Ends up in `Warning` headers. */
  readonly warnings: string[];
}

/** The subject of an error about the request's object. */
export function subjectOf(scope: RequestScope, name = scope.name): { group: string; resource: string; name: string } {
  return { group: scope.definition.group, resource: scope.definition.resource, name };
}

/** The name under which a write owns fields: the parameter, or the first word of the User-Agent. */
export function fieldManagerOf(scope: RequestScope): string {
  const given = scope.query.get("fieldManager");
  if (given !== null && given !== "") return given;
  const agent = scope.request.headers?.["user-agent"] ?? "";
  const [word = ""] = agent.split("/", 1);
  return word === "" ? "unknown" : word.slice(0, 128);
}
