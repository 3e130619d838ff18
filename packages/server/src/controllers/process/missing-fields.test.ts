import { readFileSync } from "node:fs";
import path from "node:path";
import type { CustomResourceDefinition } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { missingFields } from "./missing-fields.ts";

const crdDir = path.resolve(import.meta.dirname, "../../../../../spec/crds");
const installed = (name: string): CustomResourceDefinition => parse(readFileSync(path.join(crdDir, name), "utf8"));

test.each([
  ["sandboxes.agents.x-k8s.io", "sandboxes.yaml"],
  ["sandboxtemplates.extensions.agents.x-k8s.io", "sandboxtemplates.yaml"],
])("missingFields: our own CRD of %s lacks none, and one field less is named", (name, file) => {
  const crd = installed(file);
  expect(missingFields(name, crd)).toEqual([]);
  const hub = crd.spec.versions.find((version) => version.name === "v1beta1");
  delete hub?.schema?.openAPIV3Schema?.properties?.["spec"]?.properties?.["wakePolicy"];
  expect(missingFields(name, crd)).toMatchObject([{ field: "spec.wakePolicy" }]);
});
