import { expect, test } from "vitest";
import { parseManifests } from "./manifests.ts";
import { rewriteShortForms } from "./short-forms.ts";

async function rewrite(text: string): Promise<{ objects: unknown[]; warnings: string[] }> {
  const warnings: string[] = [];
  const manifests = rewriteShortForms(await parseManifests("f.yaml", text), (warning) => warnings.push(warning));
  return { objects: manifests.map(({ object }) => object), warnings };
}

test("rewriteShortForms: template, pool and claim become the served version", async () => {
  const { objects, warnings } = await rewrite(`
apiVersion: agents.x-k8s.io/v1alpha1
kind: SandboxTemplate
metadata: {name: py}
spec: {template: {spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: agents.x-k8s.io/v1alpha1
kind: SandboxWarmPool
metadata: {name: warm}
spec: {size: 3, template: py}
---
apiVersion: agents.x-k8s.io/v1alpha1
kind: SandboxClaim
spec: {template: py}
`);
  const apiVersion = "extensions.agents.x-k8s.io/v1beta1";
  expect(objects).toEqual([
    {
      apiVersion,
      kind: "SandboxTemplate",
      metadata: { name: "py" },
      spec: { podTemplate: { spec: { containers: [{ name: "c", image: "i" }] } } },
    },
    {
      apiVersion,
      kind: "SandboxWarmPool",
      metadata: { name: "warm" },
      spec: { replicas: 3, sandboxTemplateRef: { name: "py" } },
    },
    { apiVersion, kind: "SandboxClaim", metadata: { name: "py-claim" }, spec: { warmPoolRef: { name: "warm" } } },
  ]);
  expect(warnings).toHaveLength(3);
});

test("rewriteShortForms: a pool without a name is called like its template", async () => {
  const { objects } = await rewrite(
    "{apiVersion: agents.x-k8s.io/v1alpha1, kind: SandboxWarmPool, spec: {size: 1, template: py}}",
  );
  expect(objects).toMatchObject([{ metadata: { name: "py" } }]);
});

test("rewriteShortForms: what is served passes untouched", async () => {
  const { objects, warnings } = await rewrite(
    "{apiVersion: agents.x-k8s.io/v1beta1, kind: Sandbox, metadata: {name: a}, spec: {}}",
  );
  expect(objects).toEqual([
    { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name: "a" }, spec: {} },
  ]);
  expect(warnings).toEqual([]);
});

test("parseManifests: a broken document is named by its place", async () => {
  await expect(parseManifests("f.yaml", "a: 1\n---\nkind: X")).rejects.toThrow("f.yaml, document 1");
});
