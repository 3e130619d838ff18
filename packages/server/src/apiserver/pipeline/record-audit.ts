import type { AuthorizationAttributes } from "../auth/authorizer.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import type { ServerParts } from "../scope/server-parts.ts";

/** One answered request and what is known about it. */
export interface Answered {
  readonly request: ApiRequest;
  readonly response: ApiResponse;
  readonly attributes: AuthorizationAttributes | undefined;
  readonly error?: unknown;
  readonly receivedAtMs: number;
}

/** Kinds whose bodies hold secrets and are never recorded. */
const secretResources = new Set(["secrets", "tokenreviews", "serviceaccounts"]);

/** Hands one answered request to the audit log; never makes it wait. */
export function recordAudit({ audit, clock, ids }: ServerParts, answered: Answered): void {
  if (audit === undefined || audit.level === "off") return;
  const { request, response, attributes, error, receivedAtMs } = answered;
  const userAgent = request.headers?.["user-agent"];
  const requestObject = audit.level === "request" ? bodyOf(request, attributes) : undefined;
  audit.record({
    auditId: ids.uuid(),
    receivedAtMs,
    answeredAtMs: clock.nowMs(),
    user: request.user,
    verb: attributes?.verb ?? request.method.toLowerCase(),
    requestUri: request.path,
    status: response.status,
    decision: response.status === 403 ? "forbid" : "allow",
    reason: error instanceof Error ? error.message : "",
    ...(request.sourceIp === undefined ? {} : { sourceIp: request.sourceIp }),
    ...(userAgent === undefined ? {} : { userAgent }),
    ...(attributes?.kind === "resource" ? { object: objectOf(attributes) } : {}),
    ...(requestObject === undefined ? {} : { requestObject }),
  });
}

function objectOf(attributes: Extract<AuthorizationAttributes, { kind: "resource" }>) {
  const { group, version, resource, subresource, namespace, name } = attributes;
  return { group, version, resource, subresource, namespace, name };
}

function bodyOf(request: ApiRequest, attributes: AuthorizationAttributes | undefined): unknown {
  if (attributes?.kind !== "resource" || secretResources.has(attributes.resource)) return undefined;
  if (request.body === undefined || request.body.length === 0) return undefined;
  try {
    return JSON.parse(Buffer.from(request.body as Uint8Array).toString());
  } catch {
    // A body that is not JSON was refused already; the log keeps the rest of the event.
    return undefined;
  }
}
