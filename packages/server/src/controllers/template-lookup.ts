import type { SandboxTemplate } from "@agent-sandbox/api";
import { nameHash, namespacedKey } from "@agent-sandbox/api";
import { byNameHash, type ExtensionCaches } from "./caches.ts";
import { olderTemplate } from "./template-network-policy/controller.ts";
import { policyName } from "./template-network-policy/default-policy.ts";
import { policyProblem } from "./template-network-policy/plan.ts";

/** A template that can be used, or why not. */
export type TemplateLookup =
  | { readonly kind: "found"; readonly template: SandboxTemplate }
  | { readonly kind: "missing"; readonly name: string; readonly message: string }
  | { readonly kind: "not-ready"; readonly template: SandboxTemplate; readonly message: string };

/** Looks a template up. One that is being deleted counts as missing; one without its network policy is not ready, because its Pods would be unrestricted. */
export function lookUpTemplate(extensions: ExtensionCaches, namespace: string, name: string): TemplateLookup {
  const template = extensions.templates.get(namespacedKey(namespace, name));
  if (template === undefined || template.metadata.deletionTimestamp !== undefined) {
    return { kind: "missing", name, message: `SandboxTemplate "${name}" not found` };
  }
  const policy = extensions.networkPolicies.get(namespacedKey(namespace, policyName(name)));
  const sameHash = extensions.templates.byIndex(byNameHash, namespacedKey(namespace, nameHash(name)));
  const problem = policyProblem(template, policy, olderTemplate(template, sameHash));
  if (problem === undefined) return { kind: "found", template };
  return { kind: "not-ready", template, message: `SandboxTemplate "${name}" is not ready: ${problem.message}` };
}
