import type { Sandbox, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";
import { blueprintOf, controllerReference, nameHash, sandboxWarmPools } from "@agent-sandbox/api";
import {
  createdByLabel,
  launchTypeLabel,
  podNameAnnotation,
  podTemplateHashLabel,
  poolDefaultAnnotationsAnnotation,
  safeToEvictAnnotation,
  templateHashLabel,
  templateRefAnnotation,
  templateRefHashLabel,
  warmPoolLabel,
} from "../well-known.ts";
import { blueprintHash, podTemplateHash, securePodSpec } from "./blueprint.ts";

/** The letters Kubernetes makes name suffixes of: no vowels, no look-alikes. */
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789";
const suffixLength = 5;
/** A Sandbox's name becomes a host name, which has 63 characters at most. */
const baseMaxLength = 63 - suffixLength - 1;

/** A fresh member name; chosen here and not by the server, so that an unanswered create can be looked up. */
export function memberName(poolName: string, random: () => number): string {
  let suffix = "";
  for (let index = 0; index < suffixLength; index++) {
    suffix += suffixAlphabet[Math.floor(random() * suffixAlphabet.length)] ?? "b";
  }
  return `${poolName.slice(0, baseMaxLength)}-${suffix}`;
}

/** Builds members of one pool from one template; the parts that do not differ are made once. */
export function memberFactory(
  pool: SandboxWarmPool,
  template: SandboxTemplate,
  eviction: boolean,
): (name: string) => Sandbox {
  const marks = {
    [warmPoolLabel]: nameHash(pool.metadata.name),
    [templateRefHashLabel]: nameHash(template.metadata.name),
    [podTemplateHashLabel]: podTemplateHash(template),
    [templateHashLabel]: blueprintHash(template),
  };
  const own = template.spec.podTemplate.metadata;
  const evictable = eviction && own?.annotations?.[safeToEvictAnnotation] === undefined;
  const annotations = { ...own?.annotations, ...(evictable ? { [safeToEvictAnnotation]: "true" } : {}) };
  const spec: Sandbox["spec"] = {
    ...structuredClone(blueprintOf(template)),
    podTemplate: {
      metadata: {
        labels: { ...own?.labels, ...marks },
        ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
      },
      spec: securePodSpec(template),
    },
  };
  return (name) => ({
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name,
      generateName: `${pool.metadata.name}-`,
      namespace: pool.metadata.namespace ?? "",
      labels: { ...marks, [launchTypeLabel]: "warm", [createdByLabel]: "controller" },
      annotations: {
        [templateRefAnnotation]: template.metadata.name,
        // The Pod will have this name; saying so now saves the write that would say it later.
        [podNameAnnotation]: name,
        ...(evictable ? { [poolDefaultAnnotationsAnnotation]: safeToEvictAnnotation } : {}),
      },
      ownerReferences: [controllerReference(sandboxWarmPools, pool)],
    },
    spec,
  });
}
