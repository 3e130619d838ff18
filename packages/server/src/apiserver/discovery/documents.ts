import { createHash } from "node:crypto";
import { type JsonObject, methodNotAllowed } from "@agent-sandbox/api";
import { serveOpenApi } from "../openapi/documents.ts";
import { answerBytes, answerText, answerValue } from "../request/answer.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { negotiate } from "../request/media-type.ts";
import { notServed } from "../request/not-served.ts";
import type { ServerParts } from "../scope/server-parts.ts";
import { aggregatedDiscovery, apiGroup, apiGroupList, apiResourceList, apiVersions } from "./discovery.ts";
import { type DiscoveredGroup, discoverGroups } from "./groups.ts";
import { versionInfo } from "./version-info.ts";

/** A path that names no resource, and its query. */
export interface PlainTarget {
  readonly path: string;
  readonly query: URLSearchParams;
}

/** Answers discovery, health, version, OpenAPI and what verifies ServiceAccount tokens. */
export async function serveDocument(
  server: ServerParts,
  request: ApiRequest,
  { path }: PlainTarget,
): Promise<ApiResponse> {
  if (request.method !== "GET" && request.method !== "HEAD") throw methodNotAllowed(request.method, { resource: path });
  if (path.startsWith("/openapi/")) return serveOpenApi(server, request, path);
  const keys = await serveTokenKeys(server, path);
  if (keys !== undefined) return keys;
  const [root = "", second = "", third = ""] = path.split("/").slice(1);
  switch (root) {
    case "healthz":
    case "livez":
    case "readyz":
      return answerText(200, "ok");
    case "version":
      return answerValue(200, versionInfo);
    case "":
      return answerValue(200, { paths: rootPaths(server) });
    case "api":
      return serveCore(server, request, second);
    case "apis":
      return serveGroups(server, request, { group: second, version: third });
    default:
      throw notServed();
  }
}

/** Lets parties outside verify tokens: where the keys are, and the keys. */
async function serveTokenKeys({ tokenIssuer }: ServerParts, path: string): Promise<ApiResponse | undefined> {
  if (tokenIssuer === undefined) return undefined;
  switch (path.replace(/\/$/, "")) {
    case "/.well-known/openid-configuration":
      return answerValue(200, tokenIssuer.discoveryDocument());
    case "/openid/v1/jwks": {
      const body = Buffer.from(JSON.stringify(await tokenIssuer.keySet()));
      return answerBytes(200, [body], { "content-type": "application/jwk-set+json" });
    }
    default:
      return undefined;
  }
}

function serveCore(server: ServerParts, request: ApiRequest, version: string): ApiResponse {
  const groups = groupsOf(server).filter(({ group }) => group === "");
  if (version === "") return aggregatedOr(request, groups, apiVersions);
  return serveVersion(groups[0], version);
}

function serveGroups(
  server: ServerParts,
  request: ApiRequest,
  { group, version }: { group: string; version: string },
): ApiResponse {
  const groups = groupsOf(server).filter((candidate) => candidate.group !== "");
  if (group === "") return aggregatedOr(request, groups, () => apiGroupList(groups));
  const found = groups.find((candidate) => candidate.group === group);
  if (found === undefined) return pageNotFound();
  return version === "" ? answerValue(200, apiGroup(found)) : serveVersion(found, version);
}

function serveVersion(group: DiscoveredGroup | undefined, version: string): ApiResponse {
  const found = group?.versions.find((candidate) => candidate.version === version);
  if (group === undefined || found === undefined) return pageNotFound();
  return answerValue(200, apiResourceList(group.group, version, found.resources));
}

/** The text of Go's multiplexer, which answers in kube-apiserver for a group that is not installed. */
export function pageNotFound(): ApiResponse {
  return answerText(404, "404 page not found\n");
}

/** Whether any kind is served in this version of this group. */
export function hasVersion(server: ServerParts, { group, version }: { group: string; version: string }): boolean {
  const found = groupsOf(server).find((candidate) => candidate.group === group);
  return found?.versions.some((candidate) => candidate.version === version) ?? false;
}

/** Aggregated discovery when the client takes it, with an ETag so that clients ask cheaply; else the old form. */
function aggregatedOr(request: ApiRequest, groups: readonly DiscoveredGroup[], legacy: () => JsonObject): ApiResponse {
  const format = negotiate(request.headers?.["accept"]);
  if (format.as !== "APIGroupDiscoveryList") return answerValue(200, legacy(), { encoding: format.encoding });
  const version = format.version ?? "v2";
  const body = Buffer.from(JSON.stringify(aggregatedDiscovery(groups, version)));
  const etag = `"${createHash("sha256").update(body).digest("hex").toUpperCase()}"`;
  const type = `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`;
  const headers = { "content-type": type, etag, vary: "Accept" };
  if (request.headers?.["if-none-match"] === etag) return answerBytes(304, [], headers);
  return answerBytes(200, [body], headers);
}

const cached = new WeakMap<object, { generation: number; groups: DiscoveredGroup[] }>();

/** The groups, computed once per change of the registry. */
function groupsOf({ registry }: ServerParts): DiscoveredGroup[] {
  const known = cached.get(registry);
  if (known?.generation === registry.generation) return known.groups;
  const groups = discoverGroups(registry);
  cached.set(registry, { generation: registry.generation, groups });
  return groups;
}

function rootPaths(server: ServerParts): string[] {
  const versions = groupsOf(server).flatMap(({ group, versions: list }) =>
    group === ""
      ? list.map(({ version }) => `/api/${version}`)
      : [`/apis/${group}`, ...list.map(({ version }) => `/apis/${group}/${version}`)],
  );
  return [
    "/api",
    "/apis",
    ...versions,
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
  ].sort();
}
