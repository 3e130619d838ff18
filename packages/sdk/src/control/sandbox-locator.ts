import { annotations } from "@agent-sandbox/api/labels";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Sandbox as SandboxObject } from "@agent-sandbox/api/sandbox";
import { apiCall } from "../api-failure.ts";
import type { Engine, PlaneTarget } from "../engine/engine.ts";
import { SandboxError } from "../sandbox-error.ts";
import { awaitReady } from "./await-ready.ts";

/** On a Pod: `disabled` keeps our node from bringing sandboxd in. */
const injectionAnnotation = "agent-sandbox.dev/sandboxd";

/** How a plane without a router finds the Pod of a sandbox; one that sleeps and may be woken is woken. */
export function planeTarget(engine: Engine, { metadata, spec }: SandboxObject): PlaneTarget {
  const { namespace = "", name, uid = "" } = metadata;
  return {
    namespace,
    name,
    uid,
    hasDaemon: spec.podTemplate.metadata?.annotations?.[injectionAnnotation] !== "disabled",
    findPod: async (signal) => {
      const sandbox = await awakeSandbox(engine, { namespace, name, uid }, signal);
      return {
        name: sandbox.metadata.annotations?.[annotations.podName] ?? name,
        addresses: sandbox.status?.podIPs ?? [],
      };
    },
  };
}

async function awakeSandbox(
  engine: Engine,
  { namespace, name, uid }: Pick<PlaneTarget, "namespace" | "name" | "uid">,
  signal?: AbortSignal,
): Promise<SandboxObject> {
  const { client } = engine;
  const options = signal === undefined ? {} : { signal };
  const known = await apiCall("find sandbox", () => client.get(sandboxes, { namespace, name }, options));
  if (known.metadata.uid !== uid) throw replaced(namespace, name);
  const ready = known.status?.conditions?.find(({ type }) => type === "Ready");
  if (ready?.status === "True") return known;
  if (ready?.reason === "SandboxSuspended") {
    if (isHeld(known)) {
      throw new SandboxError("sandbox-held", `sandbox ${namespace}/${name} is suspended and traffic does not wake it`);
    }
    // What the router does for traffic it sees: report the activity, and let the controller decide whether it wakes.
    const body = { metadata: { annotations: { [annotations.lastActivityAt]: new Date().toISOString() } } };
    await apiCall("wake sandbox", () => client.patch(sandboxes, { namespace, name }, { type: "merge", body }, options));
  }
  return awaitReady({ engine, namespace, name, known, signal });
}

/** Whether traffic leaves a suspended sandbox asleep. */
function isHeld({ spec: { wakePolicy, autoSuspension } }: SandboxObject): boolean {
  return (wakePolicy ?? (autoSuspension === undefined ? "Never" : "OnTraffic")) === "Never";
}

/** The error of a handle whose sandbox is gone while another one has its name. */
export function replaced(namespace: string, name: string): SandboxError {
  return new SandboxError("not-found", `sandbox ${namespace}/${name} is another one of the same name`);
}
