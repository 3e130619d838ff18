import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitObject } from "./await-object.ts";
import type { StateWaitOptions } from "./create-options.ts";
import { conditionOf, type Verdict } from "./verdict.ts";

/** A Pod's usual grace period is 30 s; the same two minutes in every SDK. */
const suspendTimeoutMs = 120_000;

/** Waits until a Sandbox sleeps; an engine that cannot put it to sleep as asked, or has failed to, says so in its condition. */
export async function awaitSuspended(
  { client }: Engine,
  known: Sandbox,
  { waitTimeoutMs = suspendTimeoutMs, signal }: StateWaitOptions,
): Promise<void> {
  const { namespace = "", name, resourceVersion } = known.metadata;
  // The watch begins behind what is known: that is judged here.
  const verdict = judge(known);
  if (verdict.kind === "done") return;
  if (verdict.kind === "failed") throw verdict.error;
  const over = AbortSignal.timeout(waitTimeoutMs);
  const both = signal === undefined ? over : AbortSignal.any([signal, over]);
  try {
    await awaitObject({ client, resource: sandboxes, namespace, name, resourceVersion, judge, signal: both });
  } catch (error) {
    if (!over.aborted || signal?.aborted === true) throw error;
    throw new SandboxError(
      "wait-timeout",
      `sandbox ${namespace}/${name} did not fall asleep within ${waitTimeoutMs} ms`,
    );
  }
}

function judge(sandbox: Sandbox): Verdict {
  const suspended = conditionOf(sandbox, "Suspended");
  if (suspended?.status === "True") return { kind: "done" };
  if (suspended?.reason === "SuspensionStrategyNotAvailable") {
    return { kind: "failed", error: new SandboxError("unsupported", suspended.message) };
  }
  if (suspended?.reason === "SuspensionFailed") {
    return { kind: "failed", error: new SandboxError("suspension-failed", suspended.message) };
  }
  return { kind: "waiting", why: suspended?.message ?? "falling asleep" };
}
