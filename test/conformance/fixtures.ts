import { readFileSync } from "node:fs";
import type { ApiCall, Json } from "./api-call.ts";
import { rulesSchema } from "./cases/cel-rules.ts";

/** Installs the kinds the cases use and waits until they are served. */
export async function installFixtures(api: ApiCall, ownKinds: "install" | "present"): Promise<void> {
  const crds = [widgetsCrd(), rulesCrd(), ...(ownKinds === "install" ? ownCrds() : [])];
  for (const crd of crds) {
    const { status, text } = await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
      body: crd,
    });
    if (status !== 201 && status !== 409) throw new Error(`${crd.metadata.name}: ${text}`);
  }
  for (const crd of crds) await served(api, crd);
}

/** Our own kinds; converting them is another suite's subject, so they are converted by name only. */
function ownCrds(): Json[] {
  const text = readFileSync(new URL("../../spec/builtin/crds.json", import.meta.url), "utf8");
  return (JSON.parse(text) as Json[]).map((crd) => ({
    ...crd,
    spec: { ...crd.spec, conversion: { strategy: "None" } },
  }));
}

/** A kind is served once its list answers; discovery follows a moment later. */
async function served(api: ApiCall, crd: Json): Promise<void> {
  const { group, names, versions } = crd.spec;
  const endMs = Date.now() + 30_000;
  for (;;) {
    const { status } = await api.call("GET", `/apis/${group}/${versions.at(-1).name}/${names.plural}`);
    const { body } = await api.call("GET", `/apis/${group}/${versions.at(-1).name}`);
    if (status === 200 && body?.resources?.some((each: Json) => each.name === names.plural)) return;
    if (Date.now() > endMs) throw new Error(`${names.plural}.${group} is not served in time`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function crd(plural: string, kind: string, version: Json, names: Json = {}): Json {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.conformance.test` },
    spec: {
      group: "conformance.test",
      scope: "Namespaced",
      names: { plural, kind, singular: kind.toLowerCase(), ...names },
      versions: [{ name: "v1", served: true, storage: true, ...version }],
    },
  };
}

function widgetsCrd(): Json {
  const version = {
    schema: { openAPIV3Schema: widgetSchema() },
    subresources: {
      status: {},
      scale: {
        specReplicasPath: ".spec.size",
        statusReplicasPath: ".status.size",
        labelSelectorPath: ".status.selector",
      },
    },
    selectableFields: [{ jsonPath: ".spec.color" }],
    additionalPrinterColumns: [
      { name: "Size", type: "integer", jsonPath: ".spec.size", description: "how big" },
      { name: "Color", type: "string", jsonPath: ".spec.color", priority: 1 },
      { name: "When", type: "date", jsonPath: ".metadata.creationTimestamp" },
    ],
  };
  return crd("widgets", "Widget", version, { shortNames: ["wd"], categories: ["all"] });
}

function widgetSchema(): Json {
  const string = { type: "string" };
  const spec = {
    type: "object",
    properties: {
      size: { type: "integer", minimum: 0, maximum: 100 },
      weight: { type: "number", exclusiveMinimum: true, minimum: 0, multipleOf: 0.5 },
      color: { type: "string", enum: ["red", "green", "blue"] },
      mode: { type: "string", default: "auto" },
      name: { type: "string", minLength: 2, maxLength: 8, pattern: "^[a-z]+$" },
      tags: { type: "array", maxItems: 3, items: string, "x-kubernetes-list-type": "atomic" },
      names: { type: "array", items: string, "x-kubernetes-list-type": "set" },
      parts: {
        type: "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        items: {
          type: "object",
          required: ["name"],
          properties: { name: string, count: { type: "integer", default: 1 } },
        },
      },
      nested: {
        type: "object",
        required: ["must"],
        default: { must: "given", level: 1 },
        properties: { must: string, level: { type: "integer" }, maybe: { type: "string", nullable: true } },
      },
      open: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
      port: { "x-kubernetes-int-or-string": true },
      labels: { type: "object", additionalProperties: { type: "string", maxLength: 5 }, maxProperties: 2 },
      when: { type: "string", format: "date-time" },
      address: { type: "string", format: "ipv4" },
      bytes: { type: "string", format: "byte" },
      either: {
        type: "object",
        properties: { a: string, b: string },
        oneOf: [{ required: ["a"] }, { required: ["b"] }],
      },
      embedded: {
        type: "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
      },
    },
  };
  const status = { type: "object", properties: { phase: string, size: { type: "integer" }, selector: string } };
  return { type: "object", properties: { spec, status } };
}

function rulesCrd(): Json {
  return crd("rules", "Rule", { schema: { openAPIV3Schema: rulesSchema() } });
}
