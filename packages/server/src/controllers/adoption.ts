import { controllerOf, labelKeys, type Owned } from "@agent-sandbox/api";

/** Why an unowned object may not be adopted, or undefined when it may. */
export function adoptionRefusal(noun: "pod" | "service" | "PVC", object: Owned, hash: string): string | undefined {
  const labels = object.metadata.labels ?? {};
  if (labels[labelKeys.adoptable] === "true" || labels[labelKeys.sandboxNameHash] === hash) return undefined;
  return `cannot adopt unowned ${noun} "${object.metadata.name}": missing required pool authorization label ("${labelKeys.adoptable}") or sandbox tracking label ("${labelKeys.sandboxNameHash}")`;
}

/** The text for an object that another owner controls. */
export function foreignOwnerMessage(noun: "pod" | "service" | "PVC", object: Owned, sandboxName: string): string {
  const owner = controllerOf(object);
  return `${noun} "${object.metadata.name}" is owned by ${owner?.kind}/${owner?.name} (UID: ${owner?.uid}), not by sandbox "${sandboxName}"`;
}
