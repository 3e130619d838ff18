import { asJson, type JsonValue, type KubeObject } from "@agent-sandbox/api";
import type { ColumnDefinition } from "./column.ts";
import { ageOf } from "./human-duration.ts";
import { compileJsonPath } from "./json-path.ts";

/** One entry of `additionalPrinterColumns` of a CRD. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: string;
  readonly jsonPath: string;
  readonly format?: string;
  readonly description?: string;
  readonly priority?: number;
}

const nameDescription =
  "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/** The first column of every kind. */
export const nameColumn: ColumnDefinition = {
  name: "Name",
  type: "string",
  format: "name",
  description: nameDescription,
  priority: 0,
  cell: (object) => object.metadata.name ?? "",
};

/** The last column of most kinds. */
export const ageColumn: ColumnDefinition = {
  name: "Age",
  type: "string",
  format: "",
  description: "CreationTimestamp is a timestamp representing the server time when this object was created.",
  priority: 0,
  cell: (object, nowMs) => ageOf(object.metadata.creationTimestamp, nowMs),
};

/** A text column computed by a function; `wide` columns show with `-o wide`. */
export function textColumn(
  name: string,
  cell: (object: KubeObject, nowMs: number) => JsonValue,
  { wide = false, type = "string", format = "" } = {},
): ColumnDefinition {
  return { name, type, format, description: name, priority: wide ? 1 : 0, cell };
}

/** The columns of a custom resource: its name and what its CRD asks for, or its age. */
export function customColumns(columns: readonly PrinterColumn[] | undefined): ColumnDefinition[] {
  if (columns === undefined || columns.length === 0) {
    return [nameColumn, { ...ageColumn, type: "date" }];
  }
  return [nameColumn, ...columns.map(customColumn)];
}

function customColumn(column: PrinterColumn): ColumnDefinition {
  const path = compileJsonPath(column.jsonPath);
  return {
    name: column.name,
    type: column.type,
    format: column.format ?? "",
    description: column.description ?? `Custom resource definition column (in JSONPath format): ${column.jsonPath}`,
    priority: column.priority ?? 0,
    cell(object, nowMs) {
      const values = path?.(asJson(object)) ?? [];
      return cellOf(column.type, values, nowMs);
    },
  };
}

function cellOf(type: string, values: readonly JsonValue[], nowMs: number): JsonValue {
  const [value] = values;
  // What a path does not find is null in every column, as a real API server has it; clients print both as nothing.
  if (value === undefined) return null;
  if (value === null) return type === "string" ? "" : null;
  switch (type) {
    case "integer":
      return typeof value === "number" ? Math.trunc(value) : null;
    case "number":
      return typeof value === "number" ? value : null;
    case "boolean":
      return typeof value === "boolean" ? value : null;
    case "date":
      return typeof value === "string" ? ageOf(value, nowMs) : null;
    default:
      return values.length === 1 ? text(value) : values.map(text).join(" ");
  }
}

function text(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
