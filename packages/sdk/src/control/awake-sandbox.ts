import type { Sandbox as SandboxObject } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { sandboxes } from "@agent-sandbox/api/resource";
import { sandboxPhase } from "@agent-sandbox/api/sandbox-phase";
import { formatTimestampMs } from "@agent-sandbox/api/timestamp";
import type { Engine, PlaneTarget } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { replaced } from "../errors/replaced.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { awaitReady } from "./await-ready.ts";

/** The Sandbox once it can be talked to; one that sleeps and may be woken is woken. */
export async function awakeSandbox(
  engine: Engine,
  { namespace, name, uid }: Pick<PlaneTarget, "namespace" | "name" | "uid">,
  signal?: AbortSignal,
): Promise<SandboxObject> {
  const { client } = engine;
  const options = signal === undefined ? {} : { signal };
  const known = await apiCall("find sandbox", () => client.get(sandboxes, { namespace, name }, options));
  if (known.metadata.uid !== uid) throw replaced(namespace, name);
  const { phase, isHeld, wakesOnTraffic } = sandboxPhase(known);
  if (phase === "ready") return known;
  if (isHeld) {
    throw new SandboxError("sandbox-held", `sandbox ${namespace}/${name} is suspended and traffic does not wake it`);
  }
  if (wakesOnTraffic) {
    // What the router does for traffic it sees: report the activity, and let the controller decide whether it wakes.
    const body = { metadata: { annotations: { [annotationKeys.lastActivityAt]: formatTimestampMs(Date.now()) } } };
    await apiCall("wake sandbox", () => client.patch(sandboxes, { namespace, name }, { type: "merge", body }, options));
  }
  return awaitReady({ engine, namespace, name, known, signal });
}
