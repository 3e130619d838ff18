import type { SandboxTemplate, SandboxWarmPool } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import { controllerReference } from "./ownership.ts";
import { sandboxTemplates } from "./resource.ts";

/** Pools without members, through which claims that name a template and no pool start cold, are called so. */
export const shadowPoolPrefix = "shadow-pool-";

/** The pool without members of a template; it goes with the template. */
export function shadowPoolOf(template: SandboxTemplate): SandboxWarmPool {
  const { name, namespace = "" } = template.metadata;
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: {
      name: shadowPoolPrefix + name,
      namespace,
      annotations: { [annotationKeys.migrationShadow]: "true", [annotationKeys.migrationSourceTemplate]: name },
      ownerReferences: [controllerReference(sandboxTemplates, template)],
    },
    spec: { replicas: 0, sandboxTemplateRef: { name } },
  };
}
