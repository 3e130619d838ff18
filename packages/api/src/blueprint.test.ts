import { expect, test } from "vitest";
import { blueprintOf } from "./blueprint.ts";
import type { SandboxTemplate } from "./sandbox-template.ts";

const podTemplate = { spec: { containers: [{ name: "c", image: "i" }] } };
const template = (spec: Partial<SandboxTemplate["spec"]>): SandboxTemplate => ({
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind: "SandboxTemplate",
  metadata: { name: "t" },
  spec: { podTemplate, ...spec },
});

test("blueprintOf: gives what a Sandbox has too, and none of the rules for claims", () => {
  const given = {
    volumeClaimTemplates: [{ metadata: { name: "v" }, spec: {} }],
    service: false,
    suspensionStrategy: { type: "Freeze" },
    autoSuspension: { inactivityTimeoutSeconds: 60 },
    wakePolicy: "Never",
    restoreFrom: { snapshotName: "s" },
    podFailurePolicy: { type: "Recreate", retriesMax: 2 },
  } as const;
  const rules = {
    networkPolicy: {},
    networkPolicyManagement: "Managed",
    envVarsInjectionPolicy: "Allowed",
    volumeClaimTemplatesPolicy: "Allowed",
  } as const;
  const { volumeClaimTemplates, ...rest } = given;
  expect(blueprintOf(template({ ...rest, ...rules, volumeClaimTemplates: [...volumeClaimTemplates] }))).toEqual({
    podTemplate,
    ...given,
  });
});

test("blueprintOf: a field that is not set has no key", () => {
  expect(Object.keys(blueprintOf(template({})))).toEqual(["podTemplate"]);
});
