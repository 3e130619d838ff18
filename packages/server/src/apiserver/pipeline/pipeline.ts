import { ApiError, badRequest, internalError, methodNotAllowed, notFound } from "@agent-sandbox/api";
import { StoreError } from "../../store/store-error.ts";
import type { AuthorizationAttributes } from "../auth/authorizer.ts";
import { forbiddenError } from "../auth/forbidden.ts";
import { hasVersion, pageNotFound, serveDocument } from "../discovery/documents.ts";
import { hasDeleteCollection } from "../discovery/groups.ts";
import { answerError, withWarnings } from "../request/answer.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { type AnswerFormat, negotiate } from "../request/media-type.ts";
import { notServed } from "../request/not-served.ts";
import { parseRequestPath, type ResourcePath, verbOf } from "../request/request-info.ts";
import { invalidOptions, notSupported, tooLong } from "../schema/field-error.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import type { ServerParts } from "../scope/server-parts.ts";
import { isStoreConflict, storeFailure } from "../storage/object-storage.ts";
import { serveSubresource } from "../subresources/subresources.ts";
import { createVerb } from "../verbs/create.ts";
import { deleteVerb } from "../verbs/delete.ts";
import { deleteCollectionVerb } from "../verbs/delete-collection.ts";
import { getVerb } from "../verbs/get.ts";
import { listVerb } from "../verbs/list.ts";
import { isTrue } from "../verbs/list-query.ts";
import { patchVerb } from "../verbs/patch.ts";
import { updateVerb } from "../verbs/update.ts";
import { watchVerb } from "../verbs/watch.ts";
import type { FlightKind } from "./in-flight.ts";
import { wakeForKubectl } from "./kubectl-intent.ts";
import { serveVirtual } from "./virtual.ts";

/** What became of a request, for the audit log and the metrics. */
export interface Outcome {
  readonly response: ApiResponse;
  readonly attributes: AuthorizationAttributes | undefined;
  readonly error?: unknown;
}

/**
 * One request, one way: parse, take a place, authorise, find the kind, run the verb, encode. Never rejects; `enter` throws
 * where there is no place for another request of its kind.
 */
export async function runPipeline(
  server: ServerParts,
  request: ApiRequest,
  enter: (kind: FlightKind) => void,
): Promise<Outcome> {
  let attributes: AuthorizationAttributes | undefined;
  try {
    const { path, query } = splitPath(request.path);
    const parsed = parseRequestPath(path);
    if (parsed.kind === "plain") {
      attributes = { kind: "non-resource", verb: request.method.toLowerCase(), path: parsed.path };
      enter(reads.has(attributes.verb) ? "read" : "write");
      authorize(server, request, attributes);
      return { response: await serveDocument(server, request, { path: parsed.path, query }), attributes };
    }
    const resource = resourceAttributes(request, parsed, query);
    attributes = resource;
    enter(flightKind(resource, query));
    authorize(server, request, resource);
    return { response: await serveResource(server, request, { parsed, query, verb: resource.verb }), attributes };
  } catch (error) {
    return { response: answerError(wireError(error), acceptedBy(request)), attributes, error };
  }
}

const reads: ReadonlySet<string> = new Set(["get", "head", "list"]);

/** By the verb, and not by the URL: a watch can be asked for in several ways, and each holds its place until it ends. */
function flightKind({ verb, subresource }: { verb: string; subresource: string }, query: URLSearchParams): FlightKind {
  const isFollowed = subresource === "log" && isTrue(query.get("follow"));
  if (verb === "watch" || isFollowed) return "stream";
  return reads.has(verb) ? "read" : "write";
}

/** The format for an error; a wish that cannot be met is answered in JSON. */
function acceptedBy(request: ApiRequest): AnswerFormat | undefined {
  try {
    return negotiate(request.headers?.["accept"]);
  } catch {
    return undefined; // That wish is the error being answered.
  }
}

/** Parses and authorises a request that opens a stream; throws ApiError. */
export function openScope(server: ServerParts, request: ApiRequest): RequestScope {
  const { path, query } = splitPath(request.path);
  const parsed = parseRequestPath(path);
  if (parsed.kind === "plain") throw notServed();
  authorize(server, request, resourceAttributes(request, parsed, query));
  return scopeOf(server, { ...request, headers: { ...request.headers, accept: "*/*" } }, { parsed, query });
}

/** The wire error for whatever a request threw. */
export function wireError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isStoreConflict(error))
    return new ApiError(
      "Conflict",
      "the object has been modified; please apply your changes to the latest version and try again",
    );
  if (error instanceof StoreError) return storeFailure(error);
  return internalError(error instanceof Error ? error.message : String(error), error);
}

function splitPath(target: string): { path: string; query: URLSearchParams } {
  const mark = target.indexOf("?");
  const query = new URLSearchParams(mark < 0 ? "" : target.slice(mark + 1));
  return withoutWatchPrefix({ path: mark < 0 ? target : target.slice(0, mark), query });
}

const watchPath = /^(\/api\/v1|\/apis\/[^/]+\/[^/]+)\/watch(\/(?:namespaces\/[^/]+\/)?[^/]+)(?:\/([^/]+))?$/;

/** Paths that begin with `watch` are how collections were watched before the query could ask for it; one object is a selector. */
function withoutWatchPrefix(target: { path: string; query: URLSearchParams }): typeof target {
  const [, root, collection, name] = watchPath.exec(target.path) ?? [];
  if (root === undefined || collection === undefined) return target;
  const query = new URLSearchParams(target.query);
  query.set("watch", "true");
  if (name !== undefined) query.set("fieldSelector", `metadata.name=${decodeURIComponent(name)}`);
  return { path: `${root}${collection}`, query };
}

function resourceAttributes(request: ApiRequest, parsed: ResourcePath, query: URLSearchParams) {
  const isWatch = query.has("watch") && isTrue(query.get("watch"));
  const verb = verbOf(request.method, parsed, isWatch);
  if (verb === undefined) throw methodNotAllowed(request.method, parsed);
  // Streams that run commands change things even though browsers and WebSockets begin them with GET.
  const isStream = ["exec", "attach", "portforward"].includes(parsed.subresource) && verb === "get";
  const { group, version, resource, subresource, namespace } = parsed;
  const name = parsed.name === "" ? selectedName(verb, query) : parsed.name;
  return {
    kind: "resource",
    verb: isStream ? "create" : verb,
    group,
    version,
    resource,
    subresource,
    namespace,
    name,
  } as const;
}

/** A collection request that names one object is authorised for that object. */
function selectedName(verb: string, query: URLSearchParams): string {
  if (verb !== "list" && verb !== "watch") return "";
  return /^metadata\.name==?([^,]+)$/.exec(query.get("fieldSelector") ?? "")?.[1] ?? "";
}

function authorize(server: ServerParts, request: ApiRequest, attributes: AuthorizationAttributes): void {
  const decision = server.authorizer.authorize(attributes, request.user);
  if (decision.verdict !== "allow") throw forbiddenError(attributes, request.user, decision);
}

interface ResourceCall {
  readonly parsed: ResourcePath;
  readonly query: URLSearchParams;
  readonly verb: string;
}

async function serveResource(
  server: ServerParts,
  request: ApiRequest,
  { parsed, query, verb }: ResourceCall,
): Promise<ApiResponse> {
  const virtual = server.registry.findVirtual(parsed);
  if (virtual !== undefined) return serveVirtual(virtual, request, { path: parsed, query });
  if (server.registry.findServed(parsed) === undefined && !hasVersion(server, parsed)) return pageNotFound();
  const scope = scopeOf(server, request, { parsed, query });
  const warning = scope.version.deprecationWarning;
  if (warning !== undefined) scope.warnings.push(warning);
  if (parsed.subresource !== "" && parsed.subresource !== "status") {
    return withWarnings(await serveSubresource(scope, verb), scope.warnings);
  }
  if (parsed.subresource === "status" && (!scope.version.hasStatus || !["get", "update", "patch"].includes(verb)))
    throw scope.version.hasStatus ? notServed() : notFound(subjectOf(scope));
  await wakeForKubectl(scope, verb);
  return withWarnings(await runVerb(scope, verb), scope.warnings);
}

function scopeOf(
  server: ServerParts,
  request: ApiRequest,
  { parsed, query }: Omit<ResourceCall, "verb">,
): RequestScope {
  const served = server.registry.findServed(parsed);
  if (served === undefined) throw notServed();
  const { definition, version } = served;
  checkFieldManager(request.method, query);
  if (!definition.namespaced && parsed.namespace !== "" && parsed.resource !== "namespaces") throw notServed();
  if (definition.namespaced && parsed.namespace === "" && (parsed.name !== "" || request.method === "POST")) {
    throw badRequest("an empty namespace may not be set when a resource name is provided");
  }
  return {
    server,
    request,
    query,
    user: request.user,
    definition,
    version,
    namespace: definition.namespaced ? parsed.namespace : "",
    name: parsed.name,
    subresource: parsed.subresource,
    rest: parsed.rest,
    format: negotiate(request.headers?.["accept"]),
    nowMs: server.clock.nowMs(),
    dryRun: isDryRun(request.method, query),
    warnings: [],
  };
}

function isDryRun(method: string, query: URLSearchParams): boolean {
  const values = query.getAll("dryRun").filter((value) => value !== "");
  if (values.some((value) => value !== "All"))
    throw invalidOptions(optionsKind(method), [notSupported("dryRun", values, ["All"])]);
  return values.length > 0;
}

function optionsKind(method: string): string {
  return { POST: "CreateOptions", PATCH: "PatchOptions", DELETE: "DeleteOptions" }[method] ?? "UpdateOptions";
}

/** Longest name of a field manager; the same figure as Kubernetes. */
const fieldManagerMaxBytes = 128;

function checkFieldManager(method: string, query: URLSearchParams): void {
  if (Buffer.byteLength(query.get("fieldManager") ?? "") > fieldManagerMaxBytes)
    throw invalidOptions(optionsKind(method), [tooLong("fieldManager", fieldManagerMaxBytes)]);
}

function notAllowed(): ApiError {
  return new ApiError("MethodNotAllowed", "the server does not allow this method on the requested resource", {
    details: {},
  });
}

/** Runs one verb on the object or collection itself, or on its status. */
function runVerb(scope: RequestScope, verb: string): Promise<ApiResponse> | ApiResponse {
  switch (verb) {
    case "get":
      return getVerb(scope);
    case "list":
      return listVerb(scope);
    case "watch":
      return watchVerb(scope);
    case "create":
      if (scope.name !== "") throw notAllowed();
      return createVerb(scope);
    case "update":
      if (scope.name === "") throw notAllowed();
      return updateVerb(scope);
    case "patch":
      if (scope.name === "") throw notAllowed();
      return patchVerb(scope);
    case "delete":
      return deleteVerb(scope);
    case "deletecollection":
      if (!hasDeleteCollection(scope.definition)) throw notAllowed();
      return deleteCollectionVerb(scope);
    default:
      throw methodNotAllowed(verb, scope.definition);
  }
}
