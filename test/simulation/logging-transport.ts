import type { KubeRequest, KubeResponse, Transport } from "@agent-sandbox/kube";

/** One request that changes something. */
export interface Logged {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly body: string;
}

/** Notes every write that passes. */
export function loggingTransport(transport: Transport, log: Logged[]): Transport {
  return {
    request: async (request: KubeRequest): Promise<KubeResponse> => {
      const response = await transport.request(request);
      const { method, path } = request;
      if (method !== "GET") log.push({ method, path, status: response.status, body: bodyText(request) });
      return response;
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}

/** The body of a request as text; empty when it has none. */
export function bodyText({ body }: KubeRequest): string {
  return typeof body === "string" ? body : new TextDecoder().decode(body ?? new Uint8Array());
}

const verbs: Readonly<Record<string, string>> = {
  POST: "create",
  PUT: "update",
  PATCH: "patch",
  DELETE: "delete",
  GET: "get",
};

/** Every event of a watch asks for the same action again; one per request that is alive. */
const known = new WeakMap<object, string>();

/** What a request does, in words that stay the same: `patch sandboxclaims/status`. */
export function actionOf(request: { readonly method: string; readonly path: string }): string {
  let action = known.get(request);
  if (action === undefined) {
    action = parsedAction(request);
    known.set(request, action);
  }
  return action;
}

function parsedAction({ method, path }: { readonly method: string; readonly path: string }): string {
  const [route = "", query = ""] = path.split("?");
  const segments = route.split("/").filter((segment) => segment !== "");
  const rest = segments.slice(segments[0] === "api" ? 2 : 3);
  const [resource = "", name, subresource] = rest[0] === "namespaces" && rest.length > 2 ? rest.slice(2) : rest;
  const watch = /(^|&)watch=(true|1)/.test(query);
  const verb = method === "GET" && name === undefined ? (watch ? "watch" : "list") : (verbs[method] ?? method);
  return `${verb} ${resource}${subresource === undefined ? "" : `/${subresource}`}`;
}
