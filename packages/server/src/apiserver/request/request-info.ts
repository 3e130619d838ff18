import { badRequest } from "@agent-sandbox/api";

/** A path that names a resource, taken apart. Strings that do not apply are empty. */
export interface ResourcePath {
  readonly kind: "resource";
  readonly group: string;
  readonly version: string;
  readonly namespace: string;
  readonly resource: string;
  readonly name: string;
  readonly subresource: string;
  /** What follows the subresource, for proxy paths; starts with a slash or is empty. */
  readonly rest: string;
}

/** Any other path: discovery, health, documents. */
export interface PlainPath {
  readonly kind: "plain";
  readonly path: string;
}

/** What a URL path means. */
export type RequestPath = ResourcePath | PlainPath;

/** Paths that mean what they say: no escape, no dot segment, nothing that is not allowed. */
const isPlain = /^(?:\/(?!\.\.?(?:\/|$))[A-Za-z0-9._:-]*)+$/;

const namespaceSubresources = new Set(["status", "finalize"]);

/** Takes a URL path (without query) apart; throws BadRequest for a path that tries to be clever. */
export function parseRequestPath(path: string): RequestPath {
  const segments = path.split("/").slice(1);
  if (segments[0] !== "api" && segments[0] !== "apis") return { kind: "plain", path };
  const trailing = segments.at(-1) === "" ? segments.slice(0, -1) : segments;
  const prefixLength = segments[0] === "api" ? 2 : 3;
  if (trailing.length <= prefixLength) return { kind: "plain", path: `/${trailing.join("/")}` };
  const decoded = isPlain.test(path) ? trailing : trailing.map(decodeSegment);
  const group = prefixLength === 2 ? "" : (decoded[1] ?? "");
  const version = decoded[prefixLength - 1] ?? "";
  return resourcePath({ group, version, segments: decoded.slice(prefixLength), raw: trailing.slice(prefixLength) });
}

interface Split {
  readonly group: string;
  readonly version: string;
  readonly segments: readonly string[];
  readonly raw: readonly string[];
}

function resourcePath({ group, version, segments, raw }: Split): ResourcePath {
  const base = { kind: "resource", group, version } as const;
  const [first = "", second = "", third = ""] = segments;
  if (first === "namespaces" && third !== "" && !(group === "" && namespaceSubresources.has(third))) {
    const [, namespace = "", resource = "", name = "", subresource = ""] = segments;
    return { ...base, namespace, resource, name, subresource, rest: restOf(raw, 5) };
  }
  if (first === "namespaces" && second !== "" && third === "" && group !== "") {
    return { ...base, namespace: second, resource: "", name: "", subresource: "", rest: "" };
  }
  const namespace = first === "namespaces" ? second : "";
  return { ...base, namespace, resource: first, name: second, subresource: third, rest: restOf(raw, 3) };
}

function restOf(raw: readonly string[], from: number): string {
  return raw.length > from ? `/${raw.slice(from).join("/")}` : "";
}

function decodeSegment(segment: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(segment);
  } catch (cause) {
    throw badRequest("the path is not valid percent-encoding", { cause });
  }
  if (decoded === "." || decoded === ".." || hasForbiddenCharacter(decoded)) {
    throw badRequest(`path segment ${JSON.stringify(decoded)} is not allowed`);
  }
  return decoded;
}

/** Separators and control characters have no place in a name. */
function hasForbiddenCharacter(text: string): boolean {
  for (let index = 0; index < text.length; index++) {
    if (text.charCodeAt(index) < 0x20) return true;
  }
  return text.includes("/") || text.includes("\\");
}

/** The API verb of a request to a resource. */
export function verbOf(method: string, path: ResourcePath, isWatch: boolean): string | undefined {
  switch (method) {
    case "GET":
    case "HEAD":
      if (path.name !== "") return "get";
      return isWatch ? "watch" : "list";
    case "POST":
      return "create";
    case "PUT":
      return "update";
    case "PATCH":
      return "patch";
    case "DELETE":
      return path.name === "" ? "deletecollection" : "delete";
    default:
      return undefined;
  }
}
