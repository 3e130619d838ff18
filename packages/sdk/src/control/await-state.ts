import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { replaced } from "../errors/replaced.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import { type SandboxInfo, type SandboxState, sandboxInfo, sandboxState } from "./sandbox-info.ts";

/** Which sandbox to wait for, and how long. */
export interface AwaitStateOptions {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Default 180,000. */
  readonly waitTimeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/** As long as a sandbox is given to become ready. */
const limitDefaultMs = 180_000;

/** Waits, by watch, until a Sandbox is in a state; one that was deleted or replaced never will be. */
export async function awaitState(
  { client }: Engine,
  state: SandboxState,
  { namespace, name, uid, waitTimeoutMs = limitDefaultMs, signal }: AwaitStateOptions,
): Promise<SandboxInfo> {
  const over = AbortSignal.timeout(waitTimeoutMs);
  let last = "";
  const found = awaitObject({
    client,
    resource: sandboxes,
    namespace,
    name,
    judge: (object) => {
      if (object.metadata.uid !== uid) return { kind: "failed", error: replaced(namespace, name) };
      last = sandboxState(object);
      return last === state ? { kind: "done" } : { kind: "waiting", why: last };
    },
    signal: signal === undefined ? over : AbortSignal.any([signal, over]),
  });
  try {
    return sandboxInfo(await found);
  } catch (error) {
    if (!over.aborted || signal?.aborted === true) throw error;
    const message = `sandbox ${namespace}/${name} was not ${state} within ${waitTimeoutMs} ms; last seen: ${last}`;
    throw new SandboxError("wait-timeout", message);
  }
}
