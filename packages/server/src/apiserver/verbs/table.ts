import { asJson, badRequest, type JsonObject, type JsonValue, type KubeObject } from "@agent-sandbox/api";
import type { RequestScope } from "../scope/scope.ts";
import type { ColumnDefinition } from "../table/column.ts";
import { partialMetadata } from "../table/partial-metadata.ts";

/** A Table of objects with the kind's columns. `includeObject` decides what each row carries besides its cells. */
export function tableOf(scope: RequestScope, objects: readonly KubeObject[], metadata: JsonObject): JsonObject {
  const { columns } = scope.version;
  const include = scope.query.get("includeObject") ?? "";
  if (!["", "Metadata", "Object", "None"].includes(include)) {
    throw badRequest(
      `Unable to convert to Table as requested: includeObject: Invalid value: ${JSON.stringify(include)}: must be 'Metadata', 'Object', 'None', or empty`,
    );
  }
  return {
    kind: "Table",
    apiVersion: `meta.k8s.io/${scope.format.version ?? "v1"}`,
    metadata,
    columnDefinitions: columns.map(columnHeader),
    rows: objects.map((object) => tableRow(scope, columns, object)),
  };
}

/** A Table for one watch event: only the first one carries the columns. */
export function tableOfEvent(scope: RequestScope, object: KubeObject, isFirst: boolean): JsonObject {
  const table = tableOf(scope, [object], { resourceVersion: object.metadata.resourceVersion ?? "" });
  return isFirst ? table : { ...table, columnDefinitions: null };
}

function columnHeader({ name, type, format, description, priority }: ColumnDefinition): JsonObject {
  return { name, type, format, description, priority };
}

function tableRow(scope: RequestScope, columns: readonly ColumnDefinition[], object: KubeObject): JsonObject {
  const cells: JsonValue[] = columns.map((column) => column.cell(object, scope.nowMs));
  const include = scope.query.get("includeObject");
  if (include === "None") return { cells, object: null };
  return { cells, object: asJson(include === "Object" ? object : partialMetadata(object)) };
}
