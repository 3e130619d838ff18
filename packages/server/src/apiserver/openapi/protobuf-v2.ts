import { isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { stringify } from "yaml";
import { listAt, objectAt } from "../json/json.ts";
import { ProtobufWriter } from "./protobuf-writer.ts";

/** Encodes an OpenAPI v2 document in the protobuf form of `openapi.v2.Document` that older clients ask for. */
export function encodeOpenApiV2(document: JsonObject): Uint8Array {
  const info = objectAt(document, "info") ?? {};
  return new ProtobufWriter()
    .string(1, document["swagger"])
    .message(2, new ProtobufWriter().string(1, info["title"]).string(2, info["version"]))
    .message(8, encodePaths(objectAt(document, "paths") ?? {}))
    .message(9, encodeNamedSchemas(objectAt(document, "definitions") ?? {}))
    .finish();
}

function encodePaths(paths: JsonObject): ProtobufWriter {
  const writer = new ProtobufWriter();
  for (const [path, item] of Object.entries(paths)) {
    if (isJsonObject(item)) writer.message(2, new ProtobufWriter().string(1, path).message(2, encodePathItem(item)));
  }
  return writer;
}

const methodFields = { get: 2, put: 3, post: 4, delete: 5, patch: 8 } as const;

function encodePathItem(item: JsonObject): ProtobufWriter {
  const writer = new ProtobufWriter();
  for (const [method, field] of Object.entries(methodFields)) {
    const operation = objectAt(item, method);
    if (operation !== undefined) writer.message(field, encodeOperation(operation));
  }
  return writer;
}

function encodeOperation(operation: JsonObject): ProtobufWriter {
  const writer = new ProtobufWriter();
  for (const parameter of listAt(operation, "parameters")) {
    if (!isJsonObject(parameter)) continue;
    const query = new ProtobufWriter().string(2, "query").string(4, parameter["name"]).string(6, parameter["type"]);
    const nonBody = new ProtobufWriter().message(3, query);
    writer.message(8, new ProtobufWriter().message(1, new ProtobufWriter().message(2, nonBody)));
  }
  const response = new ProtobufWriter().message(1, new ProtobufWriter().string(1, "OK"));
  writer.message(9, new ProtobufWriter().message(1, new ProtobufWriter().string(1, "200").message(2, response)));
  return encodeExtensions(writer, operation, 13);
}

function encodeNamedSchemas(schemas: JsonObject): ProtobufWriter {
  const writer = new ProtobufWriter();
  for (const [name, schema] of Object.entries(schemas)) {
    if (isJsonObject(schema)) writer.message(1, new ProtobufWriter().string(1, name).message(2, encodeSchema(schema)));
  }
  return writer;
}

function encodeSchema(schema: JsonObject): ProtobufWriter {
  const writer = new ProtobufWriter()
    .string(1, schema["$ref"])
    .string(2, schema["format"])
    .string(4, schema["description"])
    .string(13, schema["pattern"]);
  for (const name of listAt(schema, "required")) writer.string(19, name);
  for (const value of listAt(schema, "enum")) writer.message(20, any(value));
  const values = objectAt(schema, "additionalProperties");
  if (values !== undefined) writer.message(21, new ProtobufWriter().message(1, encodeSchema(values)));
  const { type } = schema;
  if (typeof type === "string") writer.message(22, new ProtobufWriter().string(1, type));
  const items = objectAt(schema, "items");
  if (items !== undefined) writer.message(23, new ProtobufWriter().message(1, encodeSchema(items)));
  const properties = objectAt(schema, "properties");
  if (properties !== undefined) writer.message(25, encodeNamedSchemas(properties));
  return encodeExtensions(writer, schema, 31);
}

/** Extensions travel as YAML text. */
function encodeExtensions(writer: ProtobufWriter, holder: JsonObject, field: number): ProtobufWriter {
  for (const [name, value] of Object.entries(holder)) {
    if (!name.startsWith("x-kubernetes-") || value === undefined || name === "x-kubernetes-validations") continue;
    writer.message(field, new ProtobufWriter().string(1, name).message(2, any(value)));
  }
  return writer;
}

function any(value: JsonValue): ProtobufWriter {
  return new ProtobufWriter().string(2, stringify(value));
}
