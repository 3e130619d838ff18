import { isDnsLabel } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aClaim, aTemplate } from "../testing/builders.ts";
import { coldSandbox, coldSandboxName } from "./cold-sandbox.ts";

describe("coldSandbox", () => {
  test("coldSandbox: labels, annotation, owner and defaults", () => {
    const claim = aClaim({ metadata: { labels: { "agents.x-k8s.io/created-by": "go-client" } } });
    expect(coldSandbox(claim, aTemplate())).toMatchObject({
      metadata: {
        name: "claim",
        labels: {
          "agents.x-k8s.io/claim-uid": "uid-claim",
          "agents.x-k8s.io/created-by": "go-client",
          "agents.x-k8s.io/launch-type": "cold",
          "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f",
        },
        ownerReferences: [{ kind: "SandboxClaim", uid: "uid-claim", controller: true }],
      },
      spec: { podTemplate: { spec: { automountServiceAccountToken: false } } },
    });
  });
  test("coldSandbox: has every field that the template gives, and its own volumes", () => {
    const given = {
      service: true,
      restoreFrom: { snapshotName: "s" },
      autoSuspension: { inactivityTimeoutSeconds: 60 },
      wakePolicy: "Never",
      suspensionStrategy: { type: "Freeze" },
      podFailurePolicy: { type: "Recreate" },
    } as const;
    const volumeClaimTemplates = [{ metadata: { name: "mine" }, spec: {} }];
    const template = aTemplate({
      spec: {
        ...given,
        volumeClaimTemplates: [{ metadata: { name: "given" }, spec: {} }],
        volumeClaimTemplatesPolicy: "Allowed",
      },
    });
    const sandbox = coldSandbox(aClaim({ spec: { volumeClaimTemplates } }), template);
    expect(sandbox).toMatchObject({ spec: given });
    expect(sandbox).toMatchObject({
      spec: { volumeClaimTemplates: [{ metadata: { name: "given" } }, { metadata: { name: "mine" } }] },
    });
    expect(coldSandbox(aClaim(), aTemplate())).not.toHaveProperty("spec.volumeClaimTemplates");
  });
  test("coldSandboxName: a claim name that is no host name gives a stable one", () => {
    for (const name of ["a.b.c", "x".repeat(253), "9-lives", "UPPER.x"]) {
      const made = coldSandboxName(aClaim({ name }));
      expect(isDnsLabel(made)).toBe(true);
      expect(coldSandboxName(aClaim({ name }))).toBe(made);
    }
    expect(coldSandboxName(aClaim())).toBe("claim");
  });
});
