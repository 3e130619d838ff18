import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@agent-sandbox/kube";
import { mintScopedToken } from "./access/scoped-token.ts";
import { linkParameter } from "./access/signed-link.ts";
import type { Target } from "./addressing/target.ts";
import { RoutingError } from "./routing-error.ts";
import type { SandboxTable } from "./sandboxes/sandbox-table.ts";
import { unknownSandbox } from "./sandboxes/waker.ts";

/** What links are made with. */
export interface LinkServiceOptions {
  readonly secret: () => Uint8Array;
  /** Finds the sandbox that a link is for. */
  readonly table: Pick<SandboxTable, "seen">;
  readonly clock: Clock;
  /** Where the path form begins; links use it, because it needs no name resolution. Browsers are sent on from there. */
  readonly pathPrefix: string;
  /** The domain of the host form, if it is served: pages that name their parts by absolute paths need a host of their own. */
  readonly hostDomain?: string;
  /** The longest life of a link. */
  readonly ttlSecondsMax: number;
}

const ownPath = "/_agent-sandbox/links";
const bodyBytesMax = 4096;
const ttlSecondsDefault = 3600;

/** A sandbox that the API server has just made known to the caller may still be on its way to us. */
const seenLimitMs = 1_000;

interface LinkRequest {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
  readonly ttlSeconds?: number;
}

/** Makes signed links: `POST /_agent-sandbox/links` for callers who may connect to the sandbox. */
export class LinkService {
  readonly #options: LinkServiceOptions;

  constructor(options: LinkServiceOptions) {
    this.#options = options;
  }

  /** Whether a request is for this service. */
  owns(rawPath: string): boolean {
    return rawPath === ownPath;
  }

  /** Answers `{path, expiresAt}`, with `host` and `hostPath` where names are served; `admit` judges the caller for the sandbox he names. */
  async serve(
    request: IncomingMessage,
    response: ServerResponse,
    admit: (target: Target) => Promise<void>,
  ): Promise<void> {
    if (request.method !== "POST") throw new RoutingError(405, "links are made with POST");
    const { namespace, name, port, ttlSeconds = ttlSecondsDefault } = parseLinkRequest(await readBody(request));
    await admit({ form: "header", namespace, name, port, path: "/", pathPrefix: "" });
    const { table, clock, secret, pathPrefix, hostDomain, ttlSecondsMax } = this.#options;
    const sandbox = await table.seen(namespace, name, seenLimitMs);
    if (sandbox === undefined) throw unknownSandbox(namespace, name);
    const expiresAtSeconds = Math.floor(clock.nowMs() / 1000) + Math.min(ttlSeconds, ttlSecondsMax);
    const token = mintScopedToken({ namespace, name, port, expiresAtSeconds, uid: sandbox.uid }, secret());
    const hostPath = `/?${linkParameter}=${token}`;
    const link = {
      path: `${pathPrefix}/${namespace}/${name}/${port}${hostPath}`,
      expiresAt: new Date(expiresAtSeconds * 1000).toISOString(),
      ...(hostDomain !== undefined && { host: `${port}-${name}.${namespace}.${hostDomain}`, hostPath }),
    };
    const body = `${JSON.stringify(link)}\n`;
    response.writeHead(201, { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(body)) });
    response.end(body);
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > bodyBytesMax) throw new RoutingError(413, `request body is larger than ${bodyBytesMax} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parseLinkRequest(text: string): LinkRequest {
  const refused = new RoutingError(400, "expected {namespace, name, port, ttlSeconds?}");
  let value: Partial<LinkRequest> | null;
  try {
    value = JSON.parse(text) as Partial<LinkRequest> | null;
  } catch {
    throw refused;
  }
  const isPort = Number.isInteger(value?.port) && Number(value?.port) > 0 && Number(value?.port) < 65_536;
  const isTtl = value?.ttlSeconds === undefined || (Number.isInteger(value.ttlSeconds) && value.ttlSeconds > 0);
  if (typeof value?.namespace !== "string" || typeof value.name !== "string" || !isPort || !isTtl) throw refused;
  return value as LinkRequest;
}
