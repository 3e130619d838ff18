import { type CustomResourceDefinition, customResourceDefinitions, ignore } from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";

/** Fields that our CRDs have beyond the reference's, and what a cluster without them does without. */
const ownFields: Readonly<Record<string, readonly { readonly path: readonly string[]; readonly loss: string }[]>> = {
  "sandboxes.agents.x-k8s.io": [
    ...["suspensionStrategy", "autoSuspension", "wakePolicy", "podFailurePolicy"].map((field) => ({
      path: ["spec", field],
      loss: "the field is dropped from what users write",
    })),
    { path: ["status", "sleep"], loss: "no Sandbox can freeze or hibernate" },
    {
      path: ["status", "podUID"],
      loss: "a Pod is known by its owner reference alone, and nodes of this engine start no Pod of a Sandbox",
    },
  ],
  "sandboxtemplates.extensions.agents.x-k8s.io": [
    "suspensionStrategy",
    "autoSuspension",
    "wakePolicy",
    "podFailurePolicy",
  ].map((field) => ({ path: ["spec", field], loss: "sandboxes of claims and pools do not get it" })),
};

/** The reference's CRDs prune our optional fields without an error, so that a log line says it. */
export async function warnOfMissingFields(client: Client, logger: Logger, signal: AbortSignal): Promise<void> {
  for (const name of Object.keys(ownFields)) {
    const read = client.get(customResourceDefinitions, { name }, { signal });
    const crd = await read.catch(ignore("NotFound", "Forbidden"));
    if (crd === undefined) continue;
    for (const { field, loss } of missingFields(name, crd))
      logger.warn({ crd: name, field }, `the installed CRD lacks ${field}: ${loss}; apply ours`);
  }
}

/** Which of our fields the hub version of an installed CRD lacks. Exported for tests. */
export function missingFields(
  name: string,
  crd: CustomResourceDefinition,
): readonly { readonly field: string; readonly loss: string }[] {
  const hub = crd.spec.versions.find((version) => version.name === "v1beta1");
  return (ownFields[name] ?? [])
    .filter(({ path: [part = "", field = ""] }) => {
      const parts = hub?.schema?.openAPIV3Schema?.properties ?? {};
      return parts[part]?.properties?.[field] === undefined;
    })
    .map(({ path, loss }) => ({ field: path.join("."), loss }));
}
