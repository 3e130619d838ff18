import type { NetworkPolicyEgressRule, NetworkPolicyIngressRule } from "./builtin.gen.ts";
import type { Condition, KubeObject } from "./meta.ts";
import type { SandboxBlueprint } from "./sandbox.ts";

/** A blueprint for Sandboxes, with the rules for what claims may change. */
export interface SandboxTemplate extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1beta1";
  kind: "SandboxTemplate";
  spec: SandboxTemplateSpec;
  status?: SandboxTemplateStatus;
}

/** What claims may do with a list of their own; absent means Disallowed. */
export type InjectionPolicy = "Allowed" | "Overrides" | "Disallowed";

/** The blueprint and its rules. */
export interface SandboxTemplateSpec extends SandboxTemplateSpecV1alpha1 {
  volumeClaimTemplatesPolicy?: InjectionPolicy;
}

/** Traffic rules; an absent object means the secure default, an empty one denies everything. */
export interface SandboxNetworkPolicy {
  ingress?: NetworkPolicyIngressRule[];
  egress?: NetworkPolicyEgressRule[];
}

/** What the controller observed. */
export interface SandboxTemplateStatus {
  conditions?: Condition[];
  observedGeneration?: number;
}

/** A template in the deprecated version. */
export interface SandboxTemplateV1alpha1 extends KubeObject {
  apiVersion: "extensions.agents.x-k8s.io/v1alpha1";
  kind: "SandboxTemplate";
  spec: SandboxTemplateSpecV1alpha1;
  status?: SandboxTemplateStatus;
}

/** Spec in the deprecated version, without the policy for volume claim templates. */
export interface SandboxTemplateSpecV1alpha1 extends SandboxBlueprint {
  networkPolicy?: SandboxNetworkPolicy;
  networkPolicyManagement?: "Managed" | "Unmanaged";
  envVarsInjectionPolicy?: InjectionPolicy;
}
