import { coreGroup, extensionsGroup } from "@agent-sandbox/api/labels";
import { asJson, type KubeObject } from "@agent-sandbox/api/meta";
import type { Manifest } from "./manifest.ts";

type Loose = Record<string, unknown>;

const served = `${extensionsGroup}/v1beta1`;

/**
 * Rewrites the short forms that early write-ups show, in group agents.x-k8s.io: `SandboxTemplate.spec.template`,
 * `SandboxClaim.spec.template` and `SandboxWarmPool.spec.size` and `template`. A document without a name gets one from
 * its template. Everything else passes untouched.
 */
export function rewriteShortForms(manifests: readonly Manifest[], warn: (text: string) => void): Manifest[] {
  const pools = manifests.filter(({ object }) => object.kind === "SandboxWarmPool").map(({ object }) => object);
  return manifests.flatMap((manifest) => {
    const rewritten = rewrite(manifest.object, pools);
    if (rewritten === undefined) return [manifest];
    warn(`${manifest.source}: ${rewritten.note}`);
    return rewritten.objects.map((object) => ({ ...manifest, object }));
  });
}

interface Rewritten {
  readonly objects: readonly KubeObject[];
  readonly note: string;
}

function rewrite(object: KubeObject, pools: readonly KubeObject[]): Rewritten | undefined {
  if (!object.apiVersion.startsWith(`${coreGroup}/`)) return undefined;
  const spec = specOf(object);
  switch (object.kind) {
    case "SandboxTemplate":
      return rewriteTemplate(object, spec);
    case "SandboxClaim":
      return rewriteClaim(object, spec, pools);
    case "SandboxWarmPool":
      return rewritePool(object, spec);
    default:
      return undefined;
  }
}

function rewriteTemplate(object: KubeObject, spec: Loose): Rewritten {
  const { template, podTemplate, ...rest } = spec;
  const next = { ...rest, podTemplate: podTemplate ?? template };
  const name = nameOf(object) ?? firstContainerName(next.podTemplate) ?? "template";
  return {
    objects: [make(object, name, next)],
    note: `SandboxTemplate ${name}: spec.template is read as spec.podTemplate of ${served}`,
  };
}

function rewriteClaim(object: KubeObject, spec: Loose, pools: readonly KubeObject[]): Rewritten {
  const { template, templateName, sandboxTemplateRef, ...rest } = spec;
  const wanted = textOf(template) ?? textOf(templateName) ?? textOf(sandboxTemplateRef) ?? "";
  const pool = pools.find((candidate) => templateOf(specOf(candidate)) === wanted);
  const poolName = textOf(rest["warmPoolRef"]) ?? (pool === undefined ? undefined : poolNameOf(pool)) ?? wanted;
  const name = nameOf(object) ?? `${wanted}-claim`;
  const note = `SandboxClaim ${name}: spec.template '${wanted}' is read as warm pool '${poolName}' of ${served}`;
  return { objects: [make(object, name, { ...rest, warmPoolRef: { name: poolName } })], note };
}

function rewritePool(object: KubeObject, spec: Loose): Rewritten {
  const { size, template: _template, templateName: _templateName, sandboxTemplateRef: _ref, ...rest } = spec;
  const template = templateOf(spec) ?? "";
  const name = poolNameOf(object);
  const next = { ...rest, ...(size !== undefined && { replicas: size }), sandboxTemplateRef: { name: template } };
  return {
    objects: [make(object, name, next)],
    note: `SandboxWarmPool ${name}: spec.size and spec.template are read as replicas and sandboxTemplateRef of ${served}`,
  };
}

function poolNameOf(object: KubeObject): string {
  return nameOf(object) ?? templateOf(specOf(object)) ?? "pool";
}

function templateOf(spec: Loose): string | undefined {
  return textOf(spec["sandboxTemplateRef"]) ?? textOf(spec["template"]) ?? textOf(spec["templateName"]);
}

function make(object: KubeObject, name: string, spec: Loose): KubeObject {
  return { ...object, apiVersion: served, metadata: { ...object.metadata, name }, spec } as KubeObject;
}

function specOf(object: KubeObject): Loose {
  return (asJson(object)["spec"] ?? {}) as Loose;
}

function nameOf({ metadata }: KubeObject): string | undefined {
  return metadata.name === "" ? undefined : metadata.name;
}

/** A name given as text, or as `{name}`. */
function textOf(value: unknown): string | undefined {
  if (typeof value === "string" && value !== "") return value;
  const name = typeof value === "object" && value !== null ? (value as Loose)["name"] : undefined;
  return typeof name === "string" && name !== "" ? name : undefined;
}

function firstContainerName(podTemplate: unknown): string | undefined {
  const { spec } = (podTemplate ?? {}) as { spec?: { containers?: { name?: string }[] } };
  return spec?.containers?.[0]?.name;
}
