import type { Pod, PodSpec, Sandbox, Volume } from "@agent-sandbox/api";
import { controllerReference, sandboxes } from "@agent-sandbox/api";
import { claimName } from "../sandbox-storage/plan.ts";
import { newPodMetadata } from "./pod-metadata.ts";

/** The Pod of a Sandbox: the template's spec with the claim volumes merged in, and nothing else added. */
export function podOf(sandbox: Sandbox): Pod {
  const { labels, annotations } = newPodMetadata(sandbox);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: sandbox.metadata.name,
      namespace: sandbox.metadata.namespace ?? "",
      labels,
      ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
      ownerReferences: [controllerReference(sandboxes, sandbox)],
    },
    spec: podSpecOf(sandbox),
  };
}

function podSpecOf(sandbox: Sandbox): PodSpec {
  const spec = structuredClone(sandbox.spec.podTemplate.spec);
  const templates = sandbox.spec.volumeClaimTemplates ?? [];
  if (templates.length === 0) return spec;
  const claimed = templates.map((template): Volume => {
    const name = template.metadata?.name ?? "";
    return { name, persistentVolumeClaim: { claimName: claimName(name, sandbox.metadata.name) } };
  });
  const replaced = new Set(claimed.map((volume) => volume.name));
  return { ...spec, volumes: [...(spec.volumes ?? []).filter((volume) => !replaced.has(volume.name)), ...claimed] };
}
