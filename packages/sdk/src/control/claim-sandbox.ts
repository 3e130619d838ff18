import { ignore } from "@agent-sandbox/api/api-error";
import type { Sandbox, SandboxClaim } from "@agent-sandbox/api/kinds.gen";
import { sandboxClaims, sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import { readyTimeoutDefaultMs } from "./await-ready.ts";
import type { ClaimOptions } from "./create-options.ts";
import { createWhole } from "./create-whole.ts";
import { randomName } from "./random-name.ts";
import { claimObject } from "./sandbox-object.ts";
import { judgeClaim } from "./verdict.ts";

/** A claim, and which of all claims of that name. */
export interface ClaimReference {
  readonly name: string;
  readonly uid: string;
}

/** Claims a sandbox of a pool and waits for it; a claim that fails is deleted again. */
export async function claimSandbox(
  engine: Engine,
  pool: string,
  options: ClaimOptions,
): Promise<{ readonly object: Sandbox; readonly claim: ClaimReference }> {
  const { namespace = engine.namespace, name = randomName("claim"), signal } = options;
  const { client } = engine;
  const object = claimObject(pool, options, { name, namespace, nowMs: Date.now() });
  const known = await apiCall(`claim from pool '${pool}'`, () => createWhole(client, sandboxClaims, object, signal));
  const { uid = "" } = known.metadata;
  try {
    const ready = await awaitClaim(engine, known, options);
    const key = { namespace, name: ready.status?.sandbox?.name ?? "" };
    return { object: await apiCall(`get sandbox ${key.name}`, () => client.get(sandboxes, key)), claim: { name, uid } };
  } catch (error) {
    const gone = ignore("NotFound", "Conflict", "ServiceUnavailable");
    await client.delete(sandboxClaims, { namespace, name }, { uid }).catch(gone);
    throw error;
  }
}

async function awaitClaim({ client }: Engine, known: SandboxClaim, options: ClaimOptions): Promise<SandboxClaim> {
  const { readyTimeoutMs = readyTimeoutDefaultMs, onProgress, signal } = options;
  const { namespace = "", name, resourceVersion } = known.metadata;
  const over = new AbortController();
  let last = "waiting for the controller";
  const timer = setTimeout(() => {
    const message = `claim ${namespace}/${name} was not ready within ${readyTimeoutMs} ms; last seen: ${last}`;
    over.abort(new SandboxError("ready-timeout", message));
  }, readyTimeoutMs);
  try {
    return await awaitObject({
      client,
      resource: sandboxClaims,
      namespace,
      name,
      resourceVersion,
      judge: judgeClaim,
      onWaiting: (why) => {
        if (why !== last) onProgress?.(why);
        last = why;
      },
      signal: signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]),
    });
  } finally {
    clearTimeout(timer);
  }
}
