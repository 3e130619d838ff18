import type { OwnerReference, PersistentVolumeClaim, Sandbox } from "@agent-sandbox/api";
import {
  controllerReference,
  labelKeys,
  nameHash,
  ownershipOf,
  sandboxClaimName,
  sandboxes,
  withReference,
} from "@agent-sandbox/api";
import { adoptionRefusal, foreignOwnerMessage } from "../adoption.ts";

/** What to do for one volume claim. */
export type StorageAction =
  | { readonly do: "create-claim"; readonly claim: PersistentVolumeClaim }
  | {
      readonly do: "adopt-claim";
      readonly name: string;
      readonly resourceVersion: string;
      readonly ownerReferences: readonly OwnerReference[];
    };

/** The claims' part of a pass. A failure keeps the Pod from being created: it would mount what was refused. */
export interface StoragePlan {
  readonly actions: readonly StorageAction[];
  readonly failure?: string;
}

/** Creates what is missing, adopts what allows it, and stops at the first claim that has another controller. */
export function planStorage(sandbox: Sandbox, claims: ReadonlyMap<string, PersistentVolumeClaim>): StoragePlan {
  const hash = nameHash(sandbox.metadata.name);
  const reference = controllerReference(sandboxes, sandbox);
  const actions: StorageAction[] = [];
  for (const template of sandbox.spec.volumeClaimTemplates ?? []) {
    const name = sandboxClaimName(template.metadata?.name ?? "", sandbox.metadata.name);
    const found = claims.get(name);
    if (found === undefined) {
      actions.push({ do: "create-claim", claim: newClaim(sandbox, template, { name, hash, reference }) });
      continue;
    }
    const ownership = ownershipOf(found, sandboxes, sandbox);
    if (ownership === "other") return { actions, failure: foreignOwnerMessage("PVC", found, sandbox.metadata.name) };
    if (ownership === "unowned") {
      const refusal = adoptionRefusal("PVC", found, hash);
      if (refusal !== undefined) return { actions, failure: refusal };
      actions.push({
        do: "adopt-claim",
        name,
        resourceVersion: found.metadata.resourceVersion ?? "",
        ownerReferences: withReference(found.metadata.ownerReferences, reference),
      });
    }
  }
  return { actions };
}

type ClaimTemplate = NonNullable<Sandbox["spec"]["volumeClaimTemplates"]>[number];

function newClaim(
  sandbox: Sandbox,
  template: ClaimTemplate,
  { name, hash, reference }: { name: string; hash: string; reference: OwnerReference },
): PersistentVolumeClaim {
  const annotations = template.metadata?.annotations;
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: {
      name,
      namespace: sandbox.metadata.namespace ?? "",
      labels: { ...template.metadata?.labels, [labelKeys.sandboxNameHash]: hash },
      ...(annotations === undefined ? {} : { annotations: { ...annotations } }),
      ownerReferences: [reference],
    },
    spec: structuredClone(template.spec),
  };
}
