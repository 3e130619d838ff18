import { expect, test } from "vitest";
import type { CrdSource } from "./crds.ts";
import { printKindTypes } from "./kind-types.ts";
import type { Schema } from "./schema.ts";

function source(spec: Schema, older: Schema, shared: CrdSource["shared"] = {}): CrdSource {
  const version = (name: string, storage: boolean, schema: Schema) => ({
    name,
    storage,
    schema: {
      openAPIV3Schema: { type: "object", properties: { spec: schema, status: { type: "object", properties: {} } } },
    },
  });
  const versions = [version("v1alpha1", false, older), version("v1", true, spec)];
  return { shared, crd: { spec: { group: "g", names: { kind: "Box" }, versions } } };
}
const size: Schema = { type: "object", required: ["size"], properties: { size: { type: "integer" } } };

test("printKindTypes: a shared schema with a capital is a type, one without is filled in under its description", () => {
  const shared: CrdSource["shared"] = {
    Lid: { type: "object", description: "Closes it.", properties: { tight: { type: "boolean" } } },
    colour: { type: "string", description: "Paint.", enum: ["red", "blue"] },
  };
  const spec: Schema = {
    type: "object",
    properties: {
      lids: { type: "array", items: { $ref: "Lid" } },
      colours: { type: "array", items: { $ref: "colour" } },
      outside: { $ref: "colour", description: "Outer paint." },
      pod: { $ref: "PodSpec" },
      port: { $ref: "IntOrString" },
    },
  };
  const text = printKindTypes([source(spec, spec, shared)]);
  expect(text).toContain('import type { PodSpec } from "./builtin.gen.ts";');
  expect(text).toContain("/** Closes it. */\nexport interface Lid {\n  tight?: boolean;\n}");
  expect(text).toContain("  lids?: Lid[];");
  expect(text).toContain('  colours?: ("red" | "blue")[];');
  expect(text).toContain('  /** Outer paint. */\n  outside?: "red" | "blue";');
  expect(text).toContain("  pod?: PodSpec;\n  port?: number | string;");
});

test("printKindTypes: an older version has a spec of its own only where it differs", () => {
  const same = printKindTypes([source(size, size)]);
  expect(same).toContain('export interface BoxV1alpha1 extends KubeObject {\n  apiVersion: "g/v1alpha1";');
  expect(same).toContain("  size: number;");
  expect(same).not.toContain("BoxSpecV1alpha1");
  expect(printKindTypes([source(size, { ...size, required: [] })])).toContain(
    "export interface BoxSpecV1alpha1 {\n  size?: number;\n}",
  );
});

test("printKindTypes: two schemas of one name are refused", () => {
  const spec: Schema = { type: "object", properties: { lid: { $ref: "Lid" } } };
  const lid = (field: string): CrdSource["shared"] => ({
    Lid: { type: "object", properties: { [field]: { type: "string" } } },
  });
  expect(() => printKindTypes([source(spec, spec, lid("a")), source(spec, spec, lid("b"))])).toThrow(
    "two schemas are called Lid",
  );
});
