import type { NetworkPolicySpec, SandboxTemplate } from "@agent-sandbox/api";
import { labelKeys, nameHash } from "@agent-sandbox/api";

/** `<template>-network-policy`. */
export function policyName(templateName: string): string {
  return `${templateName}-network-policy`;
}

/** Whether the controller writes a policy for this template. */
export function isManaged(template: SandboxTemplate): boolean {
  return template.spec.networkPolicyManagement !== "Unmanaged";
}

/** Managed without a policy of the user's own: the default denies, and Pods get public name servers. */
export function isSecureByDefault(template: SandboxTemplate): boolean {
  return isManaged(template) && template.spec.networkPolicy === undefined;
}

/** The spec the policy must have; subject and types are never the user's to set. */
export function desiredPolicySpec(template: SandboxTemplate, routerNamespace: string): NetworkPolicySpec {
  const subject = {
    podSelector: { matchLabels: { [labelKeys.templateRefHash]: nameHash(template.metadata.name) } },
    policyTypes: ["Ingress", "Egress"],
  };
  const own = template.spec.networkPolicy;
  if (own === undefined) return { ...subject, ...secureRules(routerNamespace) };
  return { ...subject, ingress: own.ingress ?? [], egress: own.egress ?? [] };
}

function secureRules(routerNamespace: string): Pick<NetworkPolicySpec, "ingress" | "egress"> {
  return {
    ingress: [
      {
        from: [
          {
            namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": routerNamespace } },
            podSelector: { matchLabels: { app: "sandbox-router" } },
          },
        ],
      },
    ],
    egress: [
      {
        to: [
          {
            ipBlock: {
              cidr: "0.0.0.0/0",
              except: ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
            },
          },
          { ipBlock: { cidr: "::/0", except: ["fc00::/7", "fe80::/10"] } },
        ],
      },
    ],
  };
}
