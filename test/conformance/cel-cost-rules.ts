import type { Json } from "./api-call.ts";

const string = { type: "string", maxLength: 64 };
const long = { type: "string" };
const integer = { type: "integer" };
const strings = { type: "array", maxItems: 16, items: string };
const integers = { type: "array", maxItems: 16, items: integer };
const many = { type: "array", items: long };
const manyIntegers = { type: "array", items: integer };
const pairs = { type: "array", maxItems: 16, items: { type: "object", properties: { k: string, v: integer } } };
const objects = {
  type: "array",
  items: { type: "object", required: ["k"], properties: { k: long, v: integer, tags: many } },
};
const smallMap = { type: "object", maxProperties: 16, additionalProperties: string };
const map = { type: "object", additionalProperties: long };
const object = {
  type: "object",
  properties: {
    a: string,
    b: long,
    n: integer,
    l: integers,
    m: map,
    e: { type: "string", enum: ["on", "off"] },
    "x-y": string,
    d: { type: "string", format: "duration" },
    t: { type: "string", format: "date-time" },
    flag: { type: "boolean" },
    f: { type: "number" },
    o: { type: "object", properties: { q: string } },
  },
};

const table: ReadonlyArray<readonly [schema: Json, ...rules: readonly string[]]> = [
  [
    string,
    "self.startsWith('a')",
    "self.endsWith('z')",
    "self.contains('mid')",
    "self.matches('^[a-z]+$')",
    "size(self) > 2",
    "self.size() == 2",
    "self.lowerAscii() == 'abc'",
    "self.replace('a', 'b') == 'bbb'",
    "self.replace('a', 'bbbb') == 'bbb'",
    "self.replace('', 'bb') == self",
    "self.split(',').size() == 3",
    "self.split(',', 2).all(x, x == self)",
    "self.substring(1, 3) == 'bc'",
    "self.trim() == 'x'",
    "self.indexOf('c') == 2",
    "self.charAt(0) == 'x'",
    "self.find('[0-9]+') == '42'",
    "self.findAll('[0-9]').size() == 2",
    "int(self) == 5",
    "self in ['a', 'b']",
    "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))",
    "isURL(self) && url(self).getHost() == 'example.com'",
    "isIP(self) && ip(self).family() == 4",
    "self == oldSelf",
  ],
  [
    integer,
    "self * 2 + 1 == 7",
    "10 / self == 5",
    "self >= 1 && self < 10",
    "self > 5 ? self < 10 : self == 1",
    "self == 1 || self == 2",
    "string(self) == '5'",
    "self == oldSelf",
  ],
  [{ type: "number" }, "self > 1.5 && double(2) > 1.0"],
  [
    integers,
    "self.all(x, x > 0)",
    "self.exists(x, x == 2)",
    "self.exists_one(x, x == 2)",
    "self.map(x, x * 2) == [2, 4]",
    "self.map(x, x > 1, x * 2) == [2, 4]",
    "self.filter(x, x > 1).size() == 1",
    "self.sum() == 6",
    "self.min() == 1 && self.max() == 3",
    "self.isSorted()",
  ],
  [strings, "self.join('-') == 'a-b'", "self[0] == 'a'", "(self + ['z']).size() == 2"],
  [pairs, "self.all(p, has(p.k) && p.v > 0)"],
  [smallMap, "self.all(key, key.startsWith('a'))", "'x' in self && self['x'] == '1'"],
  [{ ...string, format: "duration" }, "self > duration('1h')"],
  [{ ...string, format: "date-time" }, "self.getFullYear() == 2020"],
  [
    { type: "array", maxItems: 110, items: { type: "string", maxLength: 10 } },
    "self.all(x, self.all(y, self.exists(z, z == 'last')))",
  ],
  [
    many,
    "self == oldSelf",
    "self.all(x, self.all(y, x == y))",
    "self.all(x, x.startsWith('a'))",
    "self.exists(x, x.contains('abc'))",
    "self.all(x, x.matches('^[a-z]+$'))",
    "self.map(x, x.lowerAscii()).exists(y, y == 'a')",
    "self.filter(x, x == 'a').all(y, y.size() > 2)",
    "self.join(',').size() < 10",
    "self.isSorted()",
    "self.indexOf('a') == 1",
    "'a' in self",
    "size(self) == 0 || self[0].matches('a')",
  ],
  [manyIntegers, "self.all(x, self.exists_one(y, x == y))"],
  [
    objects,
    "self.all(o, o.k == 'x')",
    "self.all(o, o.tags.all(t, t == o.k))",
    "self.exists(o, has(o.v) && o.v > 2)",
    "self.all(a, self.exists_one(b, a.k == b.k))",
  ],
  [map, "self.all(k, self[k] == 'x')", "self.exists(k, k == 'x')", "size(self) < 3"],
  [
    object,
    "self.a == self.b",
    "self.b == self.b",
    "self.n > 1 && self.l.size() < 3",
    "self.m.all(k, self.m[k] == self.a)",
    "self.e == 'on'",
    "self.x__dash__y == 'q'",
    "self.d < duration('1h')",
    "has(self.o) && has(self.o.q) && self.o.q == 'z'",
    "!has(self.a) || self.a != ''",
    "self.a + self.b == 'x'",
    "(self.flag ? self.a : self.b) == 'x'",
    "self.t > timestamp('2020-01-01T00:00:00Z')",
    "self.b < self.a",
    "self.f * 2.0 > 1.0",
    "-self.n < 0",
    "self.m.a == 'x'",
    "{'a': self.a} == {'a': 'b'}",
    "self.o == oldSelf.o",
    "dyn(self.a) == 1",
    "self.l == [1, 2, 3]",
    "[self.a, self.b].all(x, x == 'q')",
    "self.?a.orValue('none') == 'x'",
    "self.a.split(',').all(x, x.matches('[a-z]+'))",
  ],
];

/** Schemas with rules at their root, whose estimated costs are recorded in `golden/cel-costs.json`. */
export const costRules: readonly Json[] = table.map(([schema, ...rules]) => ({
  ...schema,
  "x-kubernetes-validations": rules.map((rule) => ({ rule })),
}));
