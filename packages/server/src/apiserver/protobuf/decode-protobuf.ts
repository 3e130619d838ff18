import { readFileSync } from "node:fs";
import { badRequest, type JsonObject, type JsonValue, parseApiVersion } from "@agent-sandbox/api";
import { specFile } from "../../installation/installation.ts";
import { decodeUtf8 } from "../json/parse-json.ts";
import { malformed, WireReader } from "./wire.ts";

type Field = readonly [name: string, type: string, label: "one" | "many" | "map", isPointer: boolean];
type Messages = Readonly<Record<string, Readonly<Record<string, Field>>>>;

// Read while loading, because later the process may have no right to; parsed on first use, because only clients written in Go speak protobuf.
let unparsed: string | undefined = readFileSync(specFile("builtin/protobuf.json"), "utf8");
let messages: Messages | undefined;

function readMessages(): Messages {
  messages ??= JSON.parse(unparsed ?? "") as Messages;
  unparsed = undefined;
  return messages;
}

/** Four bytes that go before every object. */
const magic = Buffer.from("k8s\0");
const unknownMessage = "k8s.io.apimachinery.pkg.runtime.Unknown";
const metaPackage = "k8s.io.apimachinery.pkg.apis.meta.v1";
const runtimePackage = "k8s.io.apimachinery.pkg.runtime";

/** Deeper nesting than any kind has. */
const depthMax = 100;

/** Parts that JSON writes into their parent and protobuf does not. */
const inlineNames = new Set([
  "volumeSource",
  "persistentVolumeSource",
  "handler",
  "ephemeralContainerCommon",
  "localObjectReference",
]);

/** Turns an object in Kubernetes' protobuf form into JSON; throws BadRequest. */
export function decodeProtobuf(bytes: Uint8Array): JsonObject {
  if (!magic.equals(bytes.subarray(0, 4))) throw malformed();
  const envelope = bytes.subarray(4);
  const { typeMeta } = readMessage(envelope, unknownMessage, 0) as {
    typeMeta?: { apiVersion?: string; kind?: string };
  };
  const { apiVersion = "", kind = "" } = typeMeta ?? {};
  const message = messageOf(apiVersion, kind);
  if (message === undefined)
    throw badRequest(`no kind ${JSON.stringify(kind)} is registered for version ${JSON.stringify(apiVersion)}`);
  return { apiVersion, kind, ...readMessage(rawOf(envelope), message, 0) };
}

/** The object's own bytes inside the envelope. */
function rawOf(envelope: Uint8Array): Uint8Array {
  const reader = new WireReader(envelope);
  for (let field = reader.next(); field !== undefined; field = reader.next())
    if (field.number === 2 && field.value instanceof Uint8Array) return field.value;
  return new Uint8Array();
}

/** Options of a request have the version of the resource they go to, and one form for all. */
const sharedKinds = new Set(["DeleteOptions", "PatchOptions", "CreateOptions", "UpdateOptions"]);

function messageOf(apiVersion: string, kind: string): string | undefined {
  const { group, version } = parseApiVersion(apiVersion);
  const folder = group === "" ? "core" : group.split(".")[0];
  const own = `k8s.io.api.${folder}.${version}.${kind}`;
  if (Object.hasOwn(readMessages(), own)) return own;
  return sharedKinds.has(kind) || group === "meta.k8s.io" ? `${metaPackage}.${kind}` : undefined;
}

function readMessage(bytes: Uint8Array, message: string, depth: number): JsonObject {
  if (depth > depthMax) throw malformed();
  const fields = readMessages()[message];
  if (fields === undefined) throw malformed();
  const object: JsonObject = {};
  const reader = new WireReader(bytes);
  for (let part = reader.next(); part !== undefined; part = reader.next()) {
    const field = fields[part.number];
    if (field !== undefined) putField(object, field, { value: part.value, depth });
  }
  return object;
}

function putField(
  object: JsonObject,
  field: Field,
  { value, depth }: { value: bigint | Uint8Array; depth: number },
): void {
  const [name, type, label, isPointer] = field;
  if (label === "map") return putEntry(object, name, { type, value, depth });
  const decoded = readValue(value, type, depth);
  if (label === "many") {
    const list = (object[name] ??= []) as JsonValue[];
    if (decoded !== undefined) list.push(decoded);
  } else if (inlineNames.has(name) && type.includes(".")) Object.assign(object, decoded);
  else if (decoded !== undefined && (isPointer || !isZero(decoded))) object[name] = decoded;
}

function putEntry(
  object: JsonObject,
  name: string,
  { type, value, depth }: { type: string; value: bigint | Uint8Array; depth: number },
): void {
  if (!(value instanceof Uint8Array)) throw malformed();
  const [keyType = "", valueType = ""] = type.split(",");
  let key: JsonValue | undefined = "";
  let entry: JsonValue | undefined;
  const reader = new WireReader(value);
  for (let part = reader.next(); part !== undefined; part = reader.next()) {
    if (part.number === 1) key = readValue(part.value, keyType, depth);
    else if (part.number === 2) entry = readValue(part.value, valueType, depth);
  }
  const map = (object[name] ??= {}) as JsonObject;
  if (typeof key === "object") throw malformed();
  Object.defineProperty(map, String(key), { value: entry ?? "", enumerable: true, writable: true, configurable: true });
}

/** What Go does not write in JSON where the field is no pointer. */
function isZero(value: JsonValue): boolean {
  if (typeof value === "object" && value !== null) return !Array.isArray(value) && Object.keys(value).length === 0;
  return value === "" || value === 0 || value === false || value === null;
}

function readValue(value: bigint | Uint8Array, type: string, depth: number): JsonValue | undefined {
  if (typeof value === "bigint") return type === "bool" ? value !== 0n : Number(BigInt.asIntN(64, value));
  if (type === "string") return decodeUtf8(value);
  if (type === "bytes") return Buffer.from(value).toString("base64");
  if (type === "double") return Buffer.from(value).readDoubleLE(0);
  return special[type]?.(value, depth) ?? plainMessage(value, type, depth);
}

function plainMessage(value: Uint8Array, type: string, depth: number): JsonValue | undefined {
  return Object.hasOwn(special, type) ? undefined : readMessage(value, type, depth + 1);
}

type Special = (value: Uint8Array, depth: number) => JsonValue | undefined;

/** Types whose JSON is not that of their fields. */
const special: Readonly<Record<string, Special>> = {
  [`${metaPackage}.Time`]: (value) => timeText(value, ""),
  [`${metaPackage}.MicroTime`]: (value) => timeText(value, "micro"),
  [`${metaPackage}.Duration`]: (value) => `${numberIn(value, 1) / 1e9}s`,
  [`${metaPackage}.FieldsV1`]: rawJson,
  [`${runtimePackage}.RawExtension`]: rawJson,
  "k8s.io.apimachinery.pkg.api.resource.Quantity": (value) => textIn(value, 1),
  "k8s.io.apimachinery.pkg.util.intstr.IntOrString": (value) =>
    numberIn(value, 1) === 0 ? numberIn(value, 2) : textIn(value, 3),
  "k8s.io.api.authentication.v1.ExtraValue": textList,
  "k8s.io.api.authorization.v1.ExtraValue": textList,
  [`${metaPackage}.Verbs`]: textList,
};

function timeText(value: Uint8Array, unit: "" | "micro"): string | undefined {
  const seconds = numberIn(value, 1);
  const nanos = numberIn(value, 2);
  if (seconds === 0 && nanos === 0) return undefined;
  const text = new Date(seconds * 1_000).toISOString().slice(0, 19);
  return unit === "" ? `${text}Z` : `${text}.${String(Math.floor(nanos / 1_000)).padStart(6, "0")}Z`;
}

function rawJson(value: Uint8Array): JsonValue | undefined {
  const raw = bytesIn(value, 1);
  try {
    return raw === undefined ? undefined : (JSON.parse(decodeUtf8(raw)) as JsonValue);
  } catch (cause) {
    throw badRequest("an embedded object is not JSON", { cause });
  }
}

function textList(value: Uint8Array): JsonValue[] {
  const list: string[] = [];
  const reader = new WireReader(value);
  for (let part = reader.next(); part !== undefined; part = reader.next())
    if (part.number === 1 && part.value instanceof Uint8Array) list.push(decodeUtf8(part.value));
  return list;
}

function fieldIn(bytes: Uint8Array, number: number): bigint | Uint8Array | undefined {
  const reader = new WireReader(bytes);
  for (let part = reader.next(); part !== undefined; part = reader.next())
    if (part.number === number) return part.value;
  return undefined;
}

function numberIn(bytes: Uint8Array, number: number): number {
  const value = fieldIn(bytes, number);
  return typeof value === "bigint" ? Number(BigInt.asIntN(64, value)) : 0;
}

function bytesIn(bytes: Uint8Array, number: number): Uint8Array | undefined {
  const value = fieldIn(bytes, number);
  return value instanceof Uint8Array ? value : undefined;
}

function textIn(bytes: Uint8Array, number: number): string {
  const value = bytesIn(bytes, number);
  return value === undefined ? "" : decodeUtf8(value);
}
