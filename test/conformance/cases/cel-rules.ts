import type { Json } from "../api-call.ts";
import { at } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const string = { type: "string", maxLength: 64 };
const integer = { type: "integer" };
const strings = { type: "array", maxItems: 16, items: string };
const integers = { type: "array", maxItems: 16, items: integer };
const pairs = { type: "array", maxItems: 16, items: { type: "object", properties: { k: string, v: integer } } };
const stringMap = { type: "object", maxProperties: 16, additionalProperties: string };

/** A rule on one field, and values that are posted one after the other: the first passes, the others show a failure. */
type Row = readonly [field: string, schema: Json, rule: Json, values: readonly unknown[]];

const rows: Row[] = [
  ["startsWith", string, "self.startsWith('a')", ["ab", "ba"]],
  ["endsWith", string, "self.endsWith('z')", ["az", "za"]],
  ["contains", string, "self.contains('mid')", ["amidb", "none"]],
  ["matches", string, "self.matches('^[a-z]+$')", ["abc", "A1"]],
  ["size", string, "size(self) > 2", ["abc", "a"]],
  ["sizeOfRunes", string, "self.size() == 2", ["é€", "abc"]],
  ["lowerAscii", string, "self.lowerAscii() == 'abc'", ["ABC", "ABD"]],
  ["replaceText", string, "self.replace('a', 'b') == 'bbb'", ["aaa", "ccc"]],
  ["splitText", string, "self.split(',').size() == 3", ["a,b,c", "a,b"]],
  ["substring", string, "self.substring(1, 3) == 'bc'", ["abcd", "xxxx", "a"]],
  ["trimText", string, "self.trim() == 'x'", [" x ", "y"]],
  ["indexOf", string, "self.indexOf('c') == 2", ["abc", "cab"]],
  ["charAt", string, "self.charAt(0) == 'x'", ["xy", "yx"]],
  ["find", string, "self.find('[0-9]+') == '42'", ["a42b", "a1b"]],
  ["findAll", string, "self.findAll('[0-9]').size() == 2", ["1a2", "1"]],
  ["arithmetic", integer, "self * 2 + 1 == 7", [3, 4]],
  ["division", integer, "10 / self == 5", [2, 3, 0]],
  ["modulo", integer, "self % 2 == 0", [4, 5]],
  ["comparison", integer, "self >= 1 && self < 10", [5, 10]],
  ["ternary", integer, "self > 5 ? self < 10 : self == 1", [7, 12]],
  ["orElse", integer, "self == 1 || self == 2", [2, 3]],
  ["stringOf", integer, "string(self) == '5'", [5, 6]],
  ["doubleOf", { type: "number" }, "self > 1.5 && double(2) > 1.0", [1.6, 1]],
  ["intOf", string, "int(self) == 5", ["5", "6", "x"]],
  ["inList", string, "self in ['a', 'b']", ["a", "c"]],
  [
    "all",
    integers,
    "self.all(x, x > 0)",
    [
      [1, 2],
      [1, -2],
    ],
  ],
  ["exists", integers, "self.exists(x, x == 2)", [[1, 2], [1]]],
  [
    "existsOne",
    integers,
    "self.exists_one(x, x == 2)",
    [
      [1, 2],
      [2, 2],
    ],
  ],
  ["mapped", integers, "self.map(x, x * 2) == [2, 4]", [[1, 2], [1]]],
  [
    "filtered",
    integers,
    "self.filter(x, x > 1).size() == 1",
    [
      [1, 2],
      [2, 3],
    ],
  ],
  ["sum", integers, "self.sum() == 6", [[1, 2, 3], [1]]],
  [
    "minMax",
    integers,
    "self.min() == 1 && self.max() == 3",
    [
      [1, 3],
      [2, 3],
    ],
  ],
  [
    "isSorted",
    integers,
    "self.isSorted()",
    [
      [1, 2],
      [2, 1],
    ],
  ],
  ["joined", strings, "self.join('-') == 'a-b'", [["a", "b"], ["b"]]],
  ["indexed", strings, "self[0] == 'a'", [["a"], ["b"], []]],
  ["concatenated", strings, "(self + ['z']).size() == 2", [["a"], []]],
  ["fields", pairs, "self.all(p, has(p.k) && p.v > 0)", [[{ k: "a", v: 1 }], [{ v: 1 }]]],
  ["mapKeys", stringMap, "self.all(key, key.startsWith('a'))", [{ ab: "1" }, { b: "1" }]],
  ["mapValue", stringMap, "'x' in self && self['x'] == '1'", [{ x: "1" }, { x: "2" }, {}]],
  ["durations", { ...string, format: "duration" }, "self > duration('1h')", ["2h", "30m"]],
  [
    "timestamps",
    { ...string, format: "date-time" },
    "self.getFullYear() == 2020",
    ["2020-01-02T03:04:05Z", "2021-01-01T00:00:00Z"],
  ],
  ["quantities", string, "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))", ["2Gi", "1Mi", "x"]],
  [
    "urls",
    string,
    "isURL(self) && url(self).getHost() == 'example.com'",
    ["https://example.com/a", "https://other.example/"],
  ],
  ["addresses", string, "isIP(self) && ip(self).family() == 4", ["10.0.0.1", "::1", "x"]],
  ["networks", string, "isCIDR(self) && cidr(self).containsIP('10.0.0.1')", ["10.0.0.0/8", "192.168.0.0/16"]],
  [
    "optional",
    { type: "object", properties: { a: string, b: string } },
    "self.?a.orValue('none') == 'x'",
    [{ a: "x" }, { b: "x" }],
  ],
  [
    "messageExpression",
    integer,
    { rule: "self > 0", messageExpression: "self < -5 ? 'far too small' : 'too small'" },
    [1, -1, -9],
  ],
  [
    "reasonAndPath",
    { type: "object", properties: { a: integer, b: integer } },
    { rule: "self.a > self.b", message: "a must be above b", reason: "FieldValueForbidden", fieldPath: ".a" },
    [
      { a: 2, b: 1 },
      { a: 1, b: 2 },
    ],
  ],
  ["missingField", { type: "object", properties: { a: integer } }, "self.a > 0", [{ a: 1 }, {}]],
  [
    "intOrString",
    { "x-kubernetes-int-or-string": true },
    "type(self) == string ? self == 'a' : self == 1",
    ["a", 1, "b", 2],
  ],
  [
    "equality",
    { type: "object", properties: { a: integers, b: integers } },
    "self.a == self.b",
    [
      { a: [1], b: [1] },
      { a: [1], b: [2] },
    ],
  ],
  ["sets", strings, "sets.contains(['a', 'b'], self)", [["a"], ["c"]]],
  ["formatted", string, "'%s-%d'.format([self, 1]) == 'a-1'", ["a", "b"]],
  [
    "cost",
    { type: "array", maxItems: 110, items: { type: "string", maxLength: 10 } },
    "self.all(x, self.all(y, self.exists(z, z == 'last')))",
    [["last"], Array.from({ length: 110 }, (_, index) => (index === 109 ? "last" : `n${index}`))],
  ],
];

const transitions: readonly (readonly [field: string, schema: Json, rule: Json, before: unknown, after: unknown])[] = [
  ["immutable", string, "self == oldSelf", "a", "b"],
  ["growing", integer, "self >= oldSelf", 5, 4],
  [
    "guarded",
    integer,
    { rule: "!oldSelf.hasValue() || self > oldSelf.value()", optionalOldSelf: true, message: "must grow" },
    5,
    5,
  ],
];

/** The schema of the kind whose every field carries one rule. */
export function rulesSchema(): Json {
  const properties: Record<string, Json> = {};
  for (const [field, schema, rule] of [...rows, ...transitions]) {
    const validation = typeof rule === "string" ? { rule } : rule;
    properties[field] = { ...schema, "x-kubernetes-validations": [validation] };
  }
  return { type: "object", properties: { spec: { type: "object", properties } } };
}

function rule(name: string, field: string, value: unknown): Json {
  return { apiVersion: "conformance.test/v1", kind: "Rule", metadata: { name }, spec: { [field]: value } };
}

const verdict = (body: Json): Json => body.spec;

const scripts: Script[] = [
  ...rows.map(
    ([field, , , values]): Script => [
      `rule ${field}`,
      ...values.map((value, index) => ({
        do: `POST ${at.rules}`,
        body: rule(`r${index}`, field, value),
        show: verdict,
      })),
    ],
  ),
  ...transitions.map(
    ([field, , , before, after]): Script => [
      `transition rule ${field}`,
      { do: `POST ${at.rules}`, body: rule("r", field, before), show: verdict },
      {
        do: `PATCH ${at.rules}/r`,
        type: "application/merge-patch+json",
        body: { spec: { [field]: after } },
        show: verdict,
      },
    ],
  ),
];

/** CEL rules of custom kinds. */
export const celRules: Group = {
  name: "cel-rules",
  cases: scripted("cel-rules", scripts),
  breakage: (_request, answer) => (answer.status === 422 ? { ...answer, status: 201, body: { spec: {} } } : answer),
};
