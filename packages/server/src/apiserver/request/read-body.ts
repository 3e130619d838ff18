import { badRequest, type JsonValue, tooLarge, unsupportedMediaType } from "@agent-sandbox/api";
import { parseDocument } from "yaml";
import { decodeUtf8, JsonSyntaxError, type ParsedJson, parseJson, parseJsonText } from "../json/parse-json.ts";
import { decodeProtobuf } from "../protobuf/decode-protobuf.ts";
import type { ApiRequest } from "./api-request.ts";

/** Larger bodies are refused, as Kubernetes refuses them. */
export const bodyMaxBytes = 3 * 1024 * 1024;

/** The body as bytes, within the limit. */
export function bodyBytes(request: ApiRequest): Uint8Array {
  const body = request.body ?? "";
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  if (bytes.byteLength > bodyMaxBytes) throw tooLarge(`Request entity too large: limit is ${bodyMaxBytes}`);
  return bytes;
}

/** The media type of the body; a body without a Content-Type is JSON, because the Python client sends such. */
export function bodyType(request: ApiRequest): string {
  const header = request.headers?.["content-type"] ?? "";
  const [type = ""] = header.split(";", 1);
  return type.trim().toLowerCase();
}

const jsonTypes = new Set(["", "application/json", "*/*"]);
const yamlTypes = new Set(["application/yaml", "text/yaml", "application/x-yaml"]);

const protobufType = "application/vnd.kubernetes.protobuf";

/** Reads a body that is JSON, YAML or protobuf; throws 400, 413 or 415. */
export function readBody(request: ApiRequest): ParsedJson {
  const type = bodyType(request);
  if (jsonTypes.has(type)) return readJson(bodyBytes(request));
  if (yamlTypes.has(type)) return readYaml(bodyBytes(request));
  // Go through the text, so that what JSON refuses is refused in this form too.
  if (type === protobufType)
    return orBadRequest(() => parseJsonText(JSON.stringify(decodeProtobuf(bodyBytes(request)))));
  throw unsupportedMediaType(
    `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, ${protobufType}`,
  );
}

/** Reads bytes that are JSON whatever the header says. */
export function readJson(bytes: Uint8Array): ParsedJson {
  return orBadRequest(() => parseJson(bytes));
}

/** Reads bytes that are YAML, which JSON is too; aliases are refused because they can grow without bound. */
export function readYaml(bytes: Uint8Array): ParsedJson {
  return orBadRequest(() => {
    const text = decodeUtf8(bytes);
    const document = parseDocument(text, { uniqueKeys: false, version: "1.1", schema: "yaml-1.1" });
    const [problem] = document.errors;
    if (problem !== undefined) throw new JsonSyntaxError(`error converting YAML to JSON: ${problem.message}`);
    const value = document.toJS({ maxAliasCount: 0 }) as JsonValue;
    return parseJsonText(JSON.stringify(value ?? null));
  });
}

function orBadRequest(read: () => ParsedJson): ParsedJson {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof JsonSyntaxError) && !(cause instanceof ReferenceError)) throw cause;
    throw badRequest(`the object provided is unrecognized: ${cause.message}`, { cause });
  }
}
