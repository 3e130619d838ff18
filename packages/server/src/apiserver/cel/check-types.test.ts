import { expect, test } from "vitest";
import type { Schema } from "../schema/schema.ts";
import { checkRule } from "./compile-rule.ts";

const schema: Schema = {
  type: "object",
  properties: {
    spec: {
      type: "object",
      properties: {
        size: { type: "integer" },
        name: { type: "string" },
        "max-size": { type: "integer" },
        any: { "x-kubernetes-int-or-string": true },
        free: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
        labels: { type: "object", additionalProperties: { type: "string" } },
        items: { type: "array", items: { type: "object", properties: { id: { type: "string" } } } },
      },
    },
  },
};

test.each([
  "self.spec.size > 0 && self.metadata.name != ''",
  "has(self.spec.name) ? self.spec.name == 'a' : true",
  "self.spec.max__dash__size >= self.spec.size",
  "self.spec.any == 'x' || self.spec.any == 1",
  "self.spec.free.whatever.deep == 1",
  "self.spec.labels.app == 'x' && self.spec.labels.all(k, k.size() < 9)",
  "self.spec.items.all(i, i.id != '') && self.spec.items.map(i, i.id).exists(j, j == 'a')",
  "self.spec.items[0].id == 'a' && self.spec.size == oldSelf.spec.size",
  "self.spec.size > 1.5",
])("checkRule: accepts %s", (rule) => {
  expect(checkRule(rule, { schema, isResource: true })).toBeUndefined();
});

test.each([
  ["self.spec.sise > 0", "ERROR: <input>:1:10: undefined field 'sise'\n | self.spec.sise > 0\n | .........^"],
  ["self.metadata.labels.size() > 0", "undefined field 'labels'"],
  ["self.spec.items.all(i, i.key == 'a')", "undefined field 'key'"],
  ["self.spec.items[0].key == 'a'", "undefined field 'key'"],
  ["self.spec.size == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"],
  ["self.spec.name > 3", "found no matching overload for '_>_' applied to '(string, int)'"],
  ["self.spec.name.first == 'a'", "type 'string' does not support field selection"],
  ["self.spec.size", "must evaluate to a bool"],
  ["self.spec.labels.all(k, k > 3)", "applied to '(string, int)'"],
])("checkRule: refuses %s", (rule, problem) => {
  expect(checkRule(rule, { schema, isResource: true })).toContain(problem);
});
