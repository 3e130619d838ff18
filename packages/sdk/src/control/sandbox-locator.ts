import type { Sandbox as SandboxObject } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys } from "@agent-sandbox/api/labels";
import type { Engine, PlaneTarget } from "../engine/engine.ts";

/** How a plane without a router finds the Pod of a sandbox; one that sleeps and may be woken is woken. */
export function planeTarget(engine: Engine, { metadata, spec }: SandboxObject): PlaneTarget {
  const { namespace = "", name, uid = "" } = metadata;
  return {
    namespace,
    name,
    uid,
    hasDaemon: spec.podTemplate.metadata?.annotations?.[annotationKeys.daemon] !== "disabled",
    findPod: async (signal) => {
      const { awakeSandbox } = await import("./awake-sandbox.ts");
      const sandbox = await awakeSandbox(engine, { namespace, name, uid }, signal);
      return {
        name: sandbox.metadata.annotations?.[annotationKeys.podName] ?? name,
        addresses: sandbox.status?.podIPs ?? [],
      };
    },
  };
}
