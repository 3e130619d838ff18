import type { Duplex } from "node:stream";
import { badRequest, serviceUnavailable } from "@agent-sandbox/api";
import type { ApiRequest } from "../request/api-request.ts";
import type { NodeDialer } from "../scope/node-dialer.ts";
import type { ServerParts } from "../scope/server-parts.ts";
import { admitConnect, dialerOf, nodeTarget } from "../streams/node-proxy.ts";
import type { NodeTarget } from "../streams/pod-target.ts";
import { openScope } from "./pipeline.ts";

/** Headers of an upgrade that the node must see to answer it. */
const passedHeaders = [
  "upgrade",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
  "sec-websocket-extensions",
  "x-stream-protocol-version",
  "origin",
  "user-agent",
];

/** Header values never carry a caller's credential on to the node. */
const bearerProtocol = /^base64url\.bearer\.authorization\.k8s\.io\./;

/**
 * Opens the stream an upgrade request asks for: authorised here, then sent as it is to the node, whose answer and
 * bytes follow on the returned connection. Throws ApiError before anything was sent.
 */
export async function openUpgrade(server: ServerParts, request: ApiRequest): Promise<Duplex> {
  const scope = openScope(server, request);
  const isStream = ["exec", "attach", "portforward", "proxy"].includes(scope.subresource);
  if (!isStream) throw badRequest(`unable to upgrade a request for ${scope.definition.resource}`);
  await admitConnect(scope);
  if (scope.definition.resource === "pods") await server.waker.enter(scope, request.signal);
  const target = nodeTarget(scope);
  const connection = await connect(dialerOf(scope), target, request);
  connection.write(requestHead(request, target.path));
  return connection;
}

function connect(dialer: NodeDialer, { nodeName, component }: NodeTarget, request: ApiRequest): Promise<Duplex> {
  if (component === undefined) return dialer.connect(nodeName, request.signal);
  if (dialer.connectVirtual === undefined)
    throw serviceUnavailable(`${component} cannot be reached from this server`, 5);
  return dialer.connectVirtual(component, request.user, request.signal);
}

/** The request as the node sees it. Header values were parsed by the HTTP layer and hold no line breaks. */
function requestHead(request: ApiRequest, path: string): string {
  const lines = [`${request.method} ${path} HTTP/1.1`, "Host: node", "Connection: Upgrade"];
  for (const name of passedHeaders) {
    const value = passedValue(name, request.headers?.[name]);
    if (value !== undefined) lines.push(`${name}: ${value.replace(/[\r\n]/g, " ")}`);
  }
  return `${lines.join("\r\n")}\r\n\r\n`;
}

function passedValue(name: string, value: string | undefined): string | undefined {
  if (value === undefined || name !== "sec-websocket-protocol") return value;
  const protocols = value.split(",").map((protocol) => protocol.trim());
  return protocols.filter((protocol) => !bearerProtocol.test(protocol)).join(", ");
}
