import { asJson, isJsonObject, type JsonValue, jsonEqual, type KubeObject } from "@agent-sandbox/api";
import { objectAt, textOf } from "../json/json.ts";
import type { Strategy } from "../registry/resource-definition.ts";
import { type FieldError, forbiddenField, invalid, required, tooLong } from "../schema/field-error.ts";

/** The content of one ConfigMap or Secret, at most. */
const contentMaxBytes = 1024 * 1024;
const configKey = /^[-._a-zA-Z0-9]+$/;

/** ConfigMaps: keys that can be file names, bounded size, optional immutability. */
export const configMapStrategy: Strategy = {
  createsOnUpdate: false,
  validate: (object) => [...validateContent(object, ["data", "binaryData"]), ...validateOnce(object)],
  validateUpdate: (object, old) => validateImmutable(object, old, ["data", "binaryData"]),
};

/** Secrets: like ConfigMaps, with base64 values; stringData is folded into data and never stored. */
export const secretStrategy: Strategy = {
  applyDefaults(object) {
    asJson(object)["type"] ??= "Opaque";
    const text = objectAt(asJson(object), "stringData");
    delete asJson(object)["stringData"];
    if (text === undefined) return;
    const encoded = Object.entries(text).map(([key, value]) => [key, Buffer.from(textOf(value)).toString("base64")]);
    asJson(object)["data"] = { ...objectAt(asJson(object), "data"), ...Object.fromEntries(encoded) };
  },
  validate: (object) => [...validateContent(object, ["data"]), ...validateKnownType(object)],
  validateUpdate(object, old) {
    const errors = validateImmutable(object, old, ["data"]);
    if (asJson(object)["type"] !== asJson(old)["type"])
      errors.push(invalid("type", asJson(object)["type"], "field is immutable"));
    return errors;
  },
  selectableFields: (object) => ({ type: textOf(asJson(object)["type"] ?? "") }),
};

function validateOnce(object: KubeObject): FieldError[] {
  const binary = objectAt(asJson(object), "binaryData") ?? {};
  return Object.keys(objectAt(asJson(object), "data") ?? {})
    .filter((key) => Object.hasOwn(binary, key))
    .map((key) => invalid(`data[${key}]`, key, "duplicate of key present in binaryData"));
}

function validateContent(object: KubeObject, fields: readonly string[]): FieldError[] {
  const errors: FieldError[] = [];
  let bytes = 0;
  for (const field of fields) {
    for (const [key, value] of Object.entries(objectAt(asJson(object), field) ?? {})) {
      bytes += textOf(value).length;
      if (key.length > 253 || !configKey.test(key) || key === "." || key === "..") {
        errors.push(
          invalid(
            `${field}[${key}]`,
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
          ),
        );
      }
    }
  }
  if (bytes > contentMaxBytes) errors.push(tooLong(fields.length > 1 ? "" : "data", contentMaxBytes));
  return errors;
}

const requiredKeys: Readonly<Record<string, readonly string[]>> = {
  "kubernetes.io/tls": ["tls.crt", "tls.key"],
  "kubernetes.io/dockerconfigjson": [".dockerconfigjson"],
  "kubernetes.io/dockercfg": [".dockercfg"],
  "kubernetes.io/ssh-auth": ["ssh-privatekey"],
};

function validateKnownType(object: KubeObject): FieldError[] {
  const data = objectAt(asJson(object), "data") ?? {};
  const keys = requiredKeys[textOf(asJson(object)["type"])] ?? [];
  const missing = keys.filter((key) => !Object.hasOwn(data, key)).map((key) => required(`data[${key}]`));
  return [...missing, ...keys.filter((key) => jsonKeys.has(key)).flatMap((key) => jsonErrors(key, data[key]))];
}

/** Parts of known types that must be JSON. */
const jsonKeys: ReadonlySet<string> = new Set([".dockerconfigjson", ".dockercfg"]);

function jsonErrors(key: string, value: JsonValue | undefined): FieldError[] {
  if (typeof value !== "string") return [];
  const text = Buffer.from(value, "base64").toString();
  try {
    JSON.parse(text);
    return [];
  } catch {
    // Go names the first character that cannot begin a value; a break further on gets the same message.
    const first = text.trimStart()[0];
    const problem =
      first === undefined
        ? "unexpected end of JSON input"
        : `invalid character '${first}' looking for beginning of value`;
    return [invalid(`data[${key}]`, "<secret contents redacted>", problem)];
  }
}

function validateImmutable(object: KubeObject, old: KubeObject, fields: readonly string[]): FieldError[] {
  if (asJson(old)["immutable"] !== true) return [];
  const errors: FieldError[] = [];
  if (asJson(object)["immutable"] !== true)
    errors.push(forbiddenField("immutable", "field is immutable when `immutable` is set"));
  for (const field of fields) {
    const before = asJson(old)[field];
    const after = asJson(object)[field];
    if (!jsonEqual(isJsonObject(before) ? before : {}, isJsonObject(after) ? after : {})) {
      errors.push(forbiddenField(field, "field is immutable when `immutable` is set"));
    }
  }
  return errors;
}
