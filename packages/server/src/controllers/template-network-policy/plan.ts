import type { Condition, NetworkPolicy, SandboxTemplate, SandboxTemplateStatus } from "@agent-sandbox/api";
import {
  controllerReference,
  isControlledBy,
  labelKeys,
  nameHash,
  sandboxTemplates,
  semanticEqual,
  templateFinalizer,
  upsertCondition,
} from "@agent-sandbox/api";
import { desiredPolicySpec, isManaged, policyName } from "./default-policy.ts";

/** Everything a pass over a template looks at. */
export interface TemplateObserved {
  readonly template: SandboxTemplate;
  readonly policy: NetworkPolicy | undefined;
  /** Sandboxes and Pods of the namespace that carry the template's hash. */
  readonly dependants: number;
  /** Name of an older template of the namespace with the same name hash. */
  readonly collidesWith: string | undefined;
  readonly routerNamespace: string;
  readonly nowMs: number;
}

/** A change the template's policy needs. */
export type PolicyAction =
  | { readonly do: "create-policy"; readonly policy: NetworkPolicy }
  | { readonly do: "update-policy"; readonly policy: NetworkPolicy }
  | { readonly do: "delete-policy"; readonly name: string; readonly uid: string };

/** What a pass decides. */
export interface TemplatePlan {
  readonly metadata?: { readonly labels?: Record<string, string>; readonly finalizers?: string[] };
  readonly policy?: PolicyAction;
  readonly status?: SandboxTemplateStatus;
}

/**
 * Label, policy and conditions. The finalizer keeps the policy, which the garbage collector would take with the
 * template, for as long as Sandboxes made from it exist: they must never run unrestricted.
 */
export function planTemplate(observed: TemplateObserved): TemplatePlan {
  const { template, dependants } = observed;
  if (template.metadata.deletionTimestamp !== undefined) {
    if (dependants > 0) return { ...planPolicy(observed), status: templateStatus(observed, undefined) };
    const kept = (template.metadata.finalizers ?? []).filter((finalizer) => finalizer !== templateFinalizer);
    return kept.length === (template.metadata.finalizers ?? []).length ? {} : { metadata: { finalizers: kept } };
  }
  const plan = planPolicy(observed);
  return { ...planMetadata(observed), ...plan, status: templateStatus(observed, plan.policy) };
}

function planMetadata({ template, policy }: TemplateObserved): Pick<TemplatePlan, "metadata"> {
  const hash = nameHash(template.metadata.name);
  const finalizers = template.metadata.finalizers ?? [];
  const label =
    template.metadata.labels?.[labelKeys.templateRefHash] === hash
      ? {}
      : { labels: { [labelKeys.templateRefHash]: hash } };
  // The hold outlasts the policy: a template that is managed again, and deleted before anyone looked, keeps it.
  const wanted = isManaged(template) || (policy !== undefined && isControlledBy(policy, sandboxTemplates, template));
  const present = finalizers.includes(templateFinalizer);
  const changed = wanted
    ? [...finalizers, templateFinalizer]
    : finalizers.filter((finalizer) => finalizer !== templateFinalizer);
  const metadata = { ...label, ...(wanted === present ? {} : { finalizers: changed }) };
  return Object.keys(metadata).length === 0 ? {} : { metadata };
}

function planPolicy({ template, policy, routerNamespace }: TemplateObserved): Pick<TemplatePlan, "policy"> {
  if (!isManaged(template)) {
    if (policy === undefined || !isControlledBy(policy, sandboxTemplates, template)) return {};
    return { policy: { do: "delete-policy", name: policy.metadata.name, uid: policy.metadata.uid ?? "" } };
  }
  const spec = desiredPolicySpec(template, routerNamespace);
  if (policy === undefined) return { policy: { do: "create-policy", policy: newPolicy(template, spec) } };
  if (!isControlledBy(policy, sandboxTemplates, template) || semanticEqual(policy.spec, spec)) return {};
  return { policy: { do: "update-policy", policy: { ...policy, spec } } };
}

function newPolicy(template: SandboxTemplate, spec: NonNullable<NetworkPolicy["spec"]>): NetworkPolicy {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: {
      name: policyName(template.metadata.name),
      namespace: template.metadata.namespace ?? "",
      ownerReferences: [controllerReference(sandboxTemplates, template)],
    },
    spec,
  };
}

/** Why Pods of this template would run without its policy, or undefined when they would not. */
export function policyProblem(
  template: SandboxTemplate,
  policy: NetworkPolicy | undefined,
  collidesWith: string | undefined,
): { readonly reason: string; readonly message: string } | undefined {
  if (collidesWith !== undefined) {
    const message = `name has the same hash (${nameHash(template.metadata.name)}) as template "${collidesWith}" of this namespace, whose network policy its Pods would get; choose another name`;
    return { reason: "NameHashCollision", message };
  }
  if (!isManaged(template)) return undefined;
  const name = policyName(template.metadata.name);
  if (policy === undefined) return { reason: "PolicyMissing", message: `NetworkPolicy "${name}" does not exist yet` };
  if (isControlledBy(policy, sandboxTemplates, template)) return undefined;
  const message = `NetworkPolicy "${name}" exists and is not controlled by this template; delete or rename it`;
  return { reason: "PolicyConflict", message };
}

/** Conditions of the template, given what is done about its policy. */
export function templateStatus(observed: TemplateObserved, action: PolicyAction | undefined): SandboxTemplateStatus {
  const { template, nowMs } = observed;
  const policy = action?.do === "create-policy" ? action.policy : observed.policy;
  const problem = policyProblem(template, policy, observed.collidesWith);
  const generation = template.metadata.generation ?? 0;
  const verdict: Omit<Condition, "lastTransitionTime"> = {
    type: "PolicyReady",
    status: problem === undefined ? "True" : "False",
    reason: problem?.reason ?? (isManaged(template) ? "PolicyApplied" : "Unmanaged"),
    message: problem?.message ?? (isManaged(template) ? "NetworkPolicy is applied" : "NetworkPolicy is not managed"),
    observedGeneration: generation,
  };
  return {
    ...template.status,
    observedGeneration: generation,
    conditions: [...upsertCondition(template.status?.conditions ?? [], verdict, nowMs)],
  };
}
