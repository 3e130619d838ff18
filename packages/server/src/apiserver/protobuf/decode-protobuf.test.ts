import { expect, test } from "vitest";
import { decodeProtobuf } from "./decode-protobuf.ts";

/** Length-delimited field. */
function field(number: number, value: Buffer | string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

function envelope(apiVersion: string, kind: string, raw: Buffer): Buffer {
  const typeMeta = Buffer.concat([field(1, apiVersion), field(2, kind)]);
  return Buffer.concat([Buffer.from("k8s\0"), field(1, typeMeta), field(2, raw)]);
}

test("protobuf: a ConfigMap becomes JSON without zeros", () => {
  const metadata = Buffer.concat([field(1, "a"), field(2, ""), field(3, "ns"), Buffer.from([7 << 3, 0])]);
  const entry = Buffer.concat([field(1, "key"), field(2, "value")]);
  const bytes = envelope("v1", "ConfigMap", Buffer.concat([field(1, metadata), field(2, entry)]));
  expect(decodeProtobuf(bytes)).toEqual({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "a", namespace: "ns" },
    data: { key: "value" },
  });
});

test("protobuf: a pointer keeps its zero", () => {
  const bytes = envelope("v1", "DeleteOptions", Buffer.from([1 << 3, 0]));
  expect(decodeProtobuf(bytes)).toEqual({ apiVersion: "v1", kind: "DeleteOptions", gracePeriodSeconds: 0 });
});

test("protobuf: a key cannot reach the prototype", () => {
  const entry = Buffer.concat([field(1, "__proto__"), field(2, "x")]);
  const decoded = decodeProtobuf(envelope("v1", "ConfigMap", field(2, entry)));
  expect(Object.keys(decoded["data"] as object)).toEqual(["__proto__"]);
  expect(({} as Record<string, unknown>)["x"]).toBeUndefined();
});

test.each([
  ["no magic", Buffer.from("{}")],
  ["a length beyond the end", Buffer.concat([Buffer.from("k8s\0"), Buffer.from([10, 200])])],
  ["a group", Buffer.concat([Buffer.from("k8s\0"), Buffer.from([11])])],
  ["an endless number", Buffer.concat([Buffer.from("k8s\0"), Buffer.alloc(12, 255)])],
  ["an unknown kind", envelope("v1", "Nonsense", Buffer.alloc(0))],
])("protobuf: %s is refused", (_title, bytes) => {
  expect(() => decodeProtobuf(bytes)).toThrow(expect.objectContaining({ reason: "BadRequest" }));
});
