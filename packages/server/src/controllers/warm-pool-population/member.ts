import type { Sandbox, SandboxTemplate, SandboxWarmPool } from "@agent-sandbox/api";
import {
  annotationKeys,
  blueprintOf,
  controllerReference,
  labelKeys,
  nameHash,
  sandboxWarmPools,
} from "@agent-sandbox/api";
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
    [labelKeys.warmPoolSandbox]: nameHash(pool.metadata.name),
    [labelKeys.templateRefHash]: nameHash(template.metadata.name),
    [labelKeys.podTemplateHash]: podTemplateHash(template),
    [labelKeys.templateHash]: blueprintHash(template),
  };
  const own = template.spec.podTemplate.metadata;
  const evictable = eviction && own?.annotations?.[annotationKeys.safeToEvict] === undefined;
  const annotations = { ...own?.annotations, ...(evictable ? { [annotationKeys.safeToEvict]: "true" } : {}) };
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
      labels: { ...marks, [labelKeys.launchType]: "warm", [labelKeys.createdBy]: "controller" },
      annotations: {
        [annotationKeys.templateRef]: template.metadata.name,
        // The Pod will have this name; saying so now saves the write that would say it later.
        [annotationKeys.podName]: name,
        ...(evictable ? { [annotationKeys.poolDefaultAnnotations]: annotationKeys.safeToEvict } : {}),
      },
      ownerReferences: [controllerReference(sandboxWarmPools, pool)],
    },
    spec,
  });
}
