import type { Pod, PodSpec, Sandbox, Volume } from "@agent-sandbox/api";
import {
  controllerReference,
  isLeftAsWritten,
  sandboxClaimName,
  sandboxes,
  withContainerDefaults,
} from "@agent-sandbox/api";
import { newPodMetadata } from "./pod-metadata.ts";

/** The Pod of a Sandbox: the template's spec with the claim volumes merged in and the first container's defaults, and nothing else added. */
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
  const spec = withDefaults(sandbox, structuredClone(sandbox.spec.podTemplate.spec));
  const templates = sandbox.spec.volumeClaimTemplates ?? [];
  if (templates.length === 0) return spec;
  const claimed = templates.map((template): Volume => {
    const name = template.metadata?.name ?? "";
    return { name, persistentVolumeClaim: { claimName: sandboxClaimName(name, sandbox.metadata.name) } };
  });
  const replaced = new Set(claimed.map((volume) => volume.name));
  return { ...spec, volumes: [...(spec.volumes ?? []).filter((volume) => !replaced.has(volume.name)), ...claimed] };
}

function withDefaults(sandbox: Sandbox, spec: PodSpec): PodSpec {
  const [first, ...others] = spec.containers ?? [];
  if (first === undefined || isLeftAsWritten(sandbox)) return spec;
  return { ...spec, containers: [withContainerDefaults(first), ...others] };
}
