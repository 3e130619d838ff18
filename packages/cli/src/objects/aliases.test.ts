import { expect, test } from "vitest";
import { nameAlias } from "./aliases.ts";
import { kindOf, kindOfObject } from "./kinds.ts";
import { parseManifests } from "./manifests.ts";

async function named(text: string): Promise<(string | undefined)[]> {
  return (await parseManifests("f.yaml", text)).map(nameAlias).map(({ object }) => object.metadata.name);
}

test("nameAlias: a printed pool without a name is called like its template, and nothing else is named", async () => {
  const text = `
{apiVersion: agents.x-k8s.io/v1alpha1, kind: SandboxWarmPool, spec: {size: 3, template: python-agent}}
---
{apiVersion: agents.x-k8s.io/v1alpha1, kind: SandboxWarmPool, metadata: {name: own}, spec: {template: python-agent}}
---
{apiVersion: extensions.agents.x-k8s.io/v1beta1, kind: SandboxWarmPool, spec: {template: python-agent}}
`;
  expect(await named(text)).toEqual(["python-agent", "own", ""]);
});

test("kinds: a printed object is found by its group, a word means the real kind", () => {
  const printed = { apiVersion: "agents.x-k8s.io/v1alpha1", kind: "SandboxClaim" };
  expect(kindOfObject(printed)?.resource.resource).toBe("sandboxclaimaliases");
  expect(kindOf("sandboxclaim").resource.group).toBe("extensions.agents.x-k8s.io");
});

test("parseManifests: a broken document is named by its place", async () => {
  await expect(parseManifests("f.yaml", "a: 1\n---\nkind: X")).rejects.toThrow("f.yaml, document 1");
});
