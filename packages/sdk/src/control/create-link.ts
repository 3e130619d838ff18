import type { Engine } from "../engine/engine.ts";
import { codeOfStatus, SandboxError } from "../errors/sandbox-error.ts";
import { readText } from "../plane/data-plane.ts";

/** What a link leads to. */
export interface LinkRequest {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
  readonly ttlMs?: number;
  readonly signal?: AbortSignal;
}

/** Asks the router for a signed link. */
export async function createLink(engine: Engine, request: LinkRequest): Promise<URL> {
  const { routerUrl } = engine;
  if (routerUrl === undefined) {
    const how = "name its router with AGENT_SANDBOX_ROUTER_URL, or use agent-sandbox port-forward";
    throw new SandboxError("unsupported", `links need a router, and none is known for ${engine.server}; ${how}`);
  }
  const { namespace, name, port, ttlMs, signal } = request;
  const router = engine.openRouter();
  try {
    const response = await router.request({
      method: "POST",
      port,
      path: "/_agent-sandbox/links",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        namespace,
        name,
        port,
        ...(ttlMs !== undefined && { ttlSeconds: Math.ceil(ttlMs / 1000) }),
      }),
      signal,
    });
    const text = await readText(response.body);
    if (response.status !== 201)
      throw new SandboxError(codeOfStatus(response.status), `link to ${namespace}/${name}:${port}: ${text.trim()}`);
    const { path } = JSON.parse(text) as { path: string };
    return new URL(path, routerUrl);
  } finally {
    await router.close();
  }
}
