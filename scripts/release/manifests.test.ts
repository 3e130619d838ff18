import { expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { releaseManifests } from "./manifests.ts";

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

function keysOf(text: string | undefined): string[] {
  const objects = parseAllDocuments(text ?? "").map((document) => document.toJS() as Manifest);
  return objects.map(({ kind, metadata }) => `${kind}/${metadata.name}`);
}

test("release manifests: core and extensions are everything, with the controller's Deployment in both", () => {
  const manifests = releaseManifests();
  const core = keysOf(manifests.get("manifest.yaml"));
  const extensions = keysOf(manifests.get("extensions.yaml"));
  const both = keysOf(manifests.get("sandbox-with-extensions.yaml"));
  expect([...core, ...extensions].toSorted()).toEqual([...both, "Deployment/agent-sandbox-controller"].toSorted());
  expect(core.filter((key) => /extensions|aliases/.test(key))).toEqual([]);
  expect(manifests.get("sandbox.yaml")).toBe(manifests.get("manifest.yaml"));
});

test("release manifests: only the controller of extensions.yaml runs them, and both run the given image", () => {
  const manifests = releaseManifests({ image: "registry.test/agent-sandbox:9" });
  expect(manifests.get("manifest.yaml")).not.toContain("--extensions");
  expect(manifests.get("extensions.yaml")).toContain("--extensions");
  const images = manifests.get("sandbox-with-extensions.yaml")?.match(/image: .*/g);
  expect(images).toEqual(["image: registry.test/agent-sandbox:9", "image: registry.test/agent-sandbox:9"]);
});
