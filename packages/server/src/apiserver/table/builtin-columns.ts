import type { ColumnDefinition } from "./column.ts";
import { ageColumn, nameColumn } from "./columns.ts";

/** The columns of a built-in kind, as kube-apiserver prints them. */
export function builtinColumns(_group: string, _resource: string): ColumnDefinition[] {
  return [nameColumn, ageColumn];
}
