import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import type { Schema } from "./schema.ts";
import { structuralProblems } from "./structural-schema.ts";

interface Crd {
  metadata: { name: string };
  spec: {
    group: string;
    names: { plural: string; shortNames: string[] };
    versions: {
      name: string;
      storage: boolean;
      deprecated?: boolean;
      deprecationWarning?: string;
      additionalPrinterColumns?: { name: string; priority?: number }[];
      subresources?: object;
      schema: { openAPIV3Schema: Schema };
    }[];
  };
}

const directory = join(import.meta.dirname, "../../spec/crds");
const crds = readdirSync(directory)
  .filter((file) => file.endsWith(".yaml"))
  .map((file) => parse(readFileSync(join(directory, file), "utf8")) as Crd);
const crd = (plural: string) => crds.find((candidate) => candidate.spec.names.plural === plural)!;
const version = (plural: string, name: string) =>
  crd(plural).spec.versions.find((candidate) => candidate.name === name)!;
const at = (plural: string, name: string, ...path: string[]): Schema =>
  path.reduce<Schema>((schema, step) => {
    const next = step === "[]" ? schema.items : schema.properties?.[step];
    if (next === undefined) throw new Error(`no ${step} in ${plural} ${name} ${path.join(".")}`);
    return next;
  }, version(plural, name).schema.openAPIV3Schema);

test.each(crds.flatMap((one) => one.spec.versions.map((v) => [one.metadata.name, v.name, v] as const)))(
  "crds: %s %s has a structural schema",
  (_name, _version, v) => {
    expect(structuralProblems(v.schema.openAPIV3Schema)).toEqual([]);
  },
);

test("crds: there are six of ours and three aliases, named after plural and group", () => {
  expect(crds.map((one) => one.metadata.name)).toEqual([
    "sandboxarchives.agent-sandbox.dev",
    "sandboxclaimaliases.agents.x-k8s.io",
    "sandboxclaims.extensions.agents.x-k8s.io",
    "sandboxes.agents.x-k8s.io",
    "sandboxsnapshots.agent-sandbox.dev",
    "sandboxtemplatealiases.agents.x-k8s.io",
    "sandboxtemplates.extensions.agents.x-k8s.io",
    "sandboxwarmpoolaliases.agents.x-k8s.io",
    "sandboxwarmpools.extensions.agents.x-k8s.io",
  ]);
  for (const one of crds) expect(one.metadata.name).toBe(`${one.spec.names.plural}.${one.spec.group}`);
});

test("crds: exactly one version is stored, and v1beta1 comes first where there are two", () => {
  for (const one of crds) {
    expect(one.spec.versions.filter((v) => v.storage)).toHaveLength(1);
    expect(one.spec.versions[0]?.storage).toBe(true);
  }
});

test("crds: kubectl apply can keep the last applied form in an annotation", () => {
  for (const one of crds) expect(JSON.stringify(one).length).toBeLessThan(256 * 1024);
});

test("crds: both Sandbox versions refuse a change of volume claim templates", () => {
  for (const name of ["v1beta1", "v1alpha1"]) {
    const [rule] = at("sandboxes", name, "spec")["x-kubernetes-validations"] ?? [];
    expect(rule?.message).toBe("volumeClaimTemplates is immutable");
    expect(rule?.rule).toContain("oldSelf.volumeClaimTemplates");
  }
});

test("crds: the embedded pod spec carries defaults, list-map keys and quantities", () => {
  const spec = ["spec", "podTemplate", "spec"];
  expect(at("sandboxes", "v1beta1", ...spec).required).toEqual(["containers"]);
  const container = [...spec, "containers", "[]"];
  expect(at("sandboxes", "v1beta1", ...spec, "containers")["x-kubernetes-list-map-keys"]).toEqual(["name"]);
  expect(at("sandboxes", "v1beta1", ...container, "ports")["x-kubernetes-list-map-keys"]).toEqual([
    "containerPort",
    "protocol",
  ]);
  expect(at("sandboxes", "v1beta1", ...container, "ports", "[]", "protocol").default).toBe("TCP");
  const limits = at("sandboxes", "v1beta1", ...container, "resources", "limits").additionalProperties;
  expect(limits?.["x-kubernetes-int-or-string"]).toBe(true);
  expect(new RegExp(limits?.pattern ?? "^$").test("1.5Gi")).toBe(true);
  expect(at("sandboxes", "v1beta1", ...spec, "imagePullSecrets", "[]", "name").default).toBe("");
});

test("crds: defaults, enums and columns are those that clients know", () => {
  expect(at("sandboxes", "v1beta1", "spec", "operatingMode")).toMatchObject({
    enum: ["Running", "Suspended"],
    default: "Running",
  });
  expect(at("sandboxes", "v1beta1", "spec", "shutdownPolicy")).toMatchObject({
    enum: ["Delete", "Retain"],
    default: "Retain",
  });
  expect(at("sandboxes", "v1alpha1", "spec", "replicas")).toMatchObject({ minimum: 0, maximum: 1, default: 1 });
  expect(at("sandboxwarmpools", "v1beta1", "spec", "replicas").default).toBe(1);
  expect(at("sandboxwarmpools", "v1alpha1", "spec").required).toEqual(["replicas", "sandboxTemplateRef"]);
  expect(at("sandboxclaims", "v1alpha1", "spec", "warmpool").default).toBe("default");
  expect(at("sandboxtemplates", "v1beta1", "spec", "networkPolicyManagement").default).toBe("Managed");
  const columns = (plural: string, name: string) =>
    version(plural, name)
      .additionalPrinterColumns?.filter(({ priority = 0 }) => priority === 0)
      .map((column) => column.name);
  expect(columns("sandboxes", "v1beta1")).toEqual(["Ready", "Reason", "Age"]);
  expect(columns("sandboxes", "v1alpha1")).toBeUndefined();
  expect(columns("sandboxclaims", "v1beta1")).toEqual(["Ready", "Sandbox", "Reason", "Age"]);
  expect(columns("sandboxwarmpools", "v1alpha1")).toEqual(["Ready", "Desired", "Age"]);
});

test("crds: fields of ours are the same in both versions of a kind", () => {
  const ours: [string, string[]][] = [
    [
      "sandboxes",
      [
        "suspensionStrategy",
        "autoSuspension",
        "wakePolicy",
        "restoreFrom",
        "ttlSecondsAfterFinished",
        "podFailurePolicy",
      ],
    ],
    ["sandboxclaims", ["startPolicy", "bindTimeoutSeconds"]],
    ["sandboxtemplates", ["suspensionStrategy", "autoSuspension", "wakePolicy", "restoreFrom", "podFailurePolicy"]],
    ["sandboxwarmpools", ["updateStrategy"]],
  ];
  for (const [plural, fields] of ours) {
    for (const field of fields)
      expect(at(plural, "v1alpha1", "spec", field)).toEqual(at(plural, "v1beta1", "spec", field));
  }
});

test.each<[string, Schema, string]>([
  ["a missing type", { properties: {} }, "(root): must have a type"],
  ["a reference", { type: "object", $ref: "x" }, "(root): $ref is forbidden"],
  [
    "an unkeyed list map",
    { type: "array", items: { type: "object" }, "x-kubernetes-list-type": "map" },
    "(root): list type map and map keys need each other",
  ],
  [
    "an optional map key",
    {
      type: "array",
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["a"],
      items: { type: "object", properties: { a: { type: "string" } } },
    },
    "(root): map key a is neither required nor defaulted",
  ],
  [
    "a type inside anyOf",
    { type: "string", anyOf: [{ type: "string" }] },
    "(root): type is forbidden inside allOf, anyOf, oneOf and not",
  ],
  ["a nested problem", { type: "object", properties: { a: { type: "array" } } }, ".a: items are required"],
  ["a default of another type", { type: "integer", default: "1" }, "(root): default does not fit"],
])("structuralProblems: reports %s", (_what, schema, problem) => {
  expect(structuralProblems(schema)).toContain(problem);
});
