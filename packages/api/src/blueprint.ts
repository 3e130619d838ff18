import type { SandboxBlueprint } from "./sandbox.ts";

/** A key for each field of a Sandbox's spec that a template gives; the type refuses a missing and an unknown one. */
const blueprintFields: Readonly<Record<keyof SandboxBlueprint, true>> = {
  podTemplate: true,
  volumeClaimTemplates: true,
  service: true,
  suspensionStrategy: true,
  autoSuspension: true,
  wakePolicy: true,
  restoreFrom: true,
  podFailurePolicy: true,
};

/**
 * The fields that a template gives to the spec of the Sandboxes made from it; of a Sandbox, the same fields, to compare.
 * Fields that are not set have no key. The values are those of the source, not copies: clone before changing one.
 */
export function blueprintOf(source: { readonly spec: SandboxBlueprint }): SandboxBlueprint {
  const given = Object.entries(source.spec).filter(
    ([field, value]) => Object.hasOwn(blueprintFields, field) && value !== undefined,
  );
  return Object.fromEntries(given) as Pick<SandboxBlueprint, "podTemplate">;
}
