import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import type { StateWaitOptions } from "./create-options.ts";

/** A Pod's usual grace period is 30 s; the same two minutes in every SDK. */
const goneTimeoutMs = 120_000;

/** Waits, by watch, until a Sandbox that is being deleted is gone, or another one has its name. */
export async function awaitGone(
  { client }: Engine,
  known: Sandbox,
  { waitTimeoutMs = goneTimeoutMs, signal }: StateWaitOptions,
): Promise<void> {
  const { namespace = "", name, resourceVersion, uid } = known.metadata;
  const over = AbortSignal.timeout(waitTimeoutMs);
  try {
    await awaitObject({
      client,
      resource: sandboxes,
      namespace,
      name,
      resourceVersion,
      judge: (now) => (now.metadata.uid === uid ? { kind: "waiting", why: "being deleted" } : { kind: "done" }),
      onDeleted: () => ({ kind: "done" }),
      signal: signal === undefined ? over : AbortSignal.any([signal, over]),
    });
  } catch (error) {
    if (!over.aborted || signal?.aborted === true) throw error;
    throw new SandboxError("wait-timeout", `sandbox ${namespace}/${name} was not gone within ${waitTimeoutMs} ms`);
  }
}
