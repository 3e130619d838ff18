import { templateFinalizer } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aPolicy, aTemplate, at, epochMs, ownedBy } from "../testing/builders.ts";
import { desiredPolicySpec } from "./default-policy.ts";
import { planTemplate, type TemplateObserved } from "./plan.ts";

const router = "agent-sandbox-system";
const aligned = {
  labels: { "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f" },
  finalizers: [templateFinalizer],
};

function observe(parts: Partial<TemplateObserved> = {}): TemplateObserved {
  return {
    template: aTemplate({ metadata: aligned }),
    policy: undefined,
    dependants: 0,
    collidesWith: undefined,
    routerNamespace: router,
    nowMs: epochMs,
    ...parts,
  };
}
const policyOf = (template = aTemplate()) => aPolicy(template, desiredPolicySpec(template, router));
const reasonOf = (plan: ReturnType<typeof planTemplate>) => plan.status?.conditions?.[0]?.reason;

describe("planTemplate", () => {
  test("planTemplate: the default policy is exact", () => {
    const plan = planTemplate(observe());
    expect(plan.policy?.do === "create-policy" && plan.policy.policy.spec).toEqual({
      podSelector: { matchLabels: { "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f" } },
      policyTypes: ["Ingress", "Egress"],
      ingress: [
        {
          from: [
            {
              namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": router } },
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
    });
  });
  test("planTemplate: the label and the finalizer are written once", () => {
    expect(planTemplate(observe({ template: aTemplate() })).metadata).toEqual(aligned);
    expect(planTemplate(observe())).not.toHaveProperty("metadata");
  });
  test("planTemplate: a custom policy is taken verbatim and an empty one denies", () => {
    const template = aTemplate({ metadata: aligned, spec: { networkPolicy: {} } });
    const plan = planTemplate(observe({ template }));
    expect(plan.policy?.do === "create-policy" && plan.policy.policy.spec).toMatchObject({
      ingress: [],
      egress: [],
      policyTypes: ["Ingress", "Egress"],
    });
  });
  test("planTemplate: drift is repaired, equality left alone", () => {
    expect(planTemplate(observe({ policy: policyOf() })).policy).toBeUndefined();
    const drifted = aPolicy(aTemplate(), { podSelector: {} });
    expect(planTemplate(observe({ policy: drifted })).policy).toMatchObject({ do: "update-policy" });
  });
  test("planTemplate: a foreign policy is never overwritten and is told on the template", () => {
    const foreign = { ...policyOf(), metadata: { ...policyOf().metadata, ownerReferences: [ownedBy("Job", "j")] } };
    const plan = planTemplate(observe({ policy: foreign }));
    expect(plan.policy).toBeUndefined();
    expect(reasonOf(plan)).toBe("PolicyConflict");
  });
  test("planTemplate: Unmanaged deletes an owned policy and keeps a foreign one", () => {
    const template = aTemplate({ metadata: aligned, spec: { networkPolicyManagement: "Unmanaged" } });
    expect(planTemplate(observe({ template, policy: policyOf() })).policy).toEqual({
      do: "delete-policy",
      name: "tpl-network-policy",
      uid: "policy-1",
    });
    const foreign = { ...policyOf(), metadata: { ...policyOf().metadata, ownerReferences: [] } };
    expect(planTemplate(observe({ template, policy: foreign })).policy).toBeUndefined();
    expect(planTemplate(observe({ template })).metadata).toEqual({ finalizers: [] });
    expect(planTemplate(observe({ template, policy: policyOf() })).metadata).toBeUndefined();
  });
  test("planTemplate: N3 a deleted template stays, policy included, while Sandboxes need it", () => {
    const template = aTemplate({ metadata: { ...aligned, deletionTimestamp: at(0) } });
    expect(planTemplate(observe({ template, policy: policyOf(), dependants: 1 })).metadata).toBeUndefined();
    expect(planTemplate(observe({ template, policy: policyOf() })).metadata).toEqual({ finalizers: [] });
  });
  test("planTemplate: a name with another's hash is not ready", () => {
    expect(reasonOf(planTemplate(observe({ collidesWith: "older", policy: policyOf() })))).toBe("NameHashCollision");
    expect(reasonOf(planTemplate(observe({ policy: policyOf() })))).toBe("PolicyApplied");
  });
});
