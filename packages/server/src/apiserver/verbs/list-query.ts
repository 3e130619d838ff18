import { badRequest, expired, type FieldRequirement, type KubeObject } from "@agent-sandbox/api";
import { fieldMatcher, fieldRequirements, labelMatcher, type ObjectMatcher } from "../registry/selectors.ts";
import { forbiddenField, invalidOptions, notSupported } from "../schema/field-error.ts";
import type { RequestScope } from "../scope/scope.ts";

/** What a list or watch asks for. */
export interface ListQuery {
  readonly limit: number | undefined;
  readonly cursor: Cursor | undefined;
  /** Undefined: any; the newest is what we have anyway. */
  readonly revision: number | undefined;
  readonly isExact: boolean;
  /** Undefined when everything matches. */
  readonly matches: ObjectMatcher | undefined;
  /** Set when the field selector names exactly one object. */
  readonly onlyName: string | undefined;
}

/** Where a paged list goes on. */
export interface Cursor {
  readonly revision: number;
  readonly afterKey: string;
}

/** Reads the parameters shared by list and watch; throws BadRequest. */
export function readListQuery(scope: RequestScope): ListQuery {
  const { query } = scope;
  const requirements = fieldRequirements(query.get("fieldSelector") ?? "");
  const labels = labelMatcher(query.get("labelSelector") ?? "");
  const fields = fieldMatcher(requirements, scope);
  const token = query.get("continue") ?? "";
  const match = query.get("resourceVersionMatch") ?? "";
  const revision = parseRevision(query.get("resourceVersion"));
  checkMatch({ match, revision, token, isWatch: isTrue(query.get("watch")), query });
  return {
    limit: parseLimit(query.get("limit")),
    cursor: token === "" ? undefined : decodeCursor(token),
    revision,
    isExact: match === "Exact",
    matches: both(labels, fields),
    onlyName: requirements.find(isNameRequirement)?.value,
  };
}

interface MatchCheck {
  readonly match: string;
  readonly revision: number | undefined;
  readonly token: string;
  readonly isWatch: boolean;
  readonly query: URLSearchParams;
}

function checkMatch({ match, revision, token, isWatch, query }: MatchCheck): void {
  if (match !== "" && match !== "Exact" && match !== "NotOlderThan") {
    throw invalidOptions("ListOptions", [notSupported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])]);
  }
  const sendsInitial = query.get("sendInitialEvents") !== null;
  if (isWatch && match !== "" && !sendsInitial) {
    throw matchForbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
  }
  if (isWatch) return;
  const unversioned = match !== "" && revision === undefined && query.get("resourceVersion") === null;
  if (sendsInitial || unversioned) {
    throw invalidOptions("ListOptions", [
      ...(unversioned
        ? [
            forbiddenField(
              "resourceVersionMatch",
              "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
          ]
        : []),
      ...(sendsInitial ? [forbiddenField("sendInitialEvents", "sendInitialEvents is forbidden for list")] : []),
    ]);
  }
  if (match === "Exact" && revision === 0)
    throw matchForbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"');
  if (token !== "" && match !== "") throw matchForbidden("resourceVersionMatch is forbidden when continue is provided");
  if (token !== "" && revision !== undefined && revision !== 0) {
    throw badRequest("specifying resource version is not allowed when using continue");
  }
}

function matchForbidden(detail: string): Error {
  return invalidOptions("ListOptions", [forbiddenField("resourceVersionMatch", detail)]);
}

function isNameRequirement({ field, operator }: FieldRequirement): boolean {
  return field === "metadata.name" && operator === "=";
}

function both(a: ObjectMatcher | undefined, b: ObjectMatcher | undefined): ObjectMatcher | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return (object: KubeObject) => a(object) && b(object);
}

/** A resourceVersion as a revision; empty is undefined. */
function parseRevision(text: string | null): number | undefined {
  if (text === null || text === "") return undefined;
  if (!/^\d{1,15}$/.test(text)) {
    const value = JSON.stringify(text);
    throw badRequest(
      `invalid resource version: resourceVersion: Invalid value: ${value}: strconv.ParseUint: parsing ${value}: invalid syntax`,
    );
  }
  return Number(text);
}

function parseLimit(text: string | null): number | undefined {
  if (text === null || text === "") return undefined;
  if (!/^\d{1,9}$/.test(text)) throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
  return text === "0" ? undefined : Number(text);
}

/** Whether a boolean parameter is set, in any spelling Go accepts. */
export function isTrue(text: string | null): boolean {
  return text !== null && ["", "1", "t", "T", "true", "TRUE", "True"].includes(text);
}

/** Writes a continue token. */
export function encodeCursor({ revision, afterKey }: Cursor): string {
  return Buffer.from(JSON.stringify({ v: "meta.k8s.io/v1", rv: revision, start: afterKey })).toString("base64url");
}

function decodeCursor(token: string): Cursor {
  try {
    const value = JSON.parse(Buffer.from(token, "base64url").toString()) as { rv?: unknown; start?: unknown };
    if (typeof value.rv === "number" && typeof value.start === "string")
      return { revision: value.rv, afterKey: value.start };
  } catch (cause) {
    throw badRequest("continue key is not valid", { cause });
  }
  throw badRequest("continue key is not valid");
}

/** The answer to a continue token whose state is gone. */
export function cursorExpired(): Error {
  return expired(
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
  );
}
