import type { JsonValue, KubeObject } from "@agent-sandbox/api";

/** One column of a Table: how it is announced and how its cell is made. */
export interface ColumnDefinition {
  readonly name: string;
  readonly type: string;
  readonly format: string;
  readonly description: string;
  /** Columns above zero are shown with `-o wide` only. */
  readonly priority: number;
  cell(object: KubeObject, nowMs: number): JsonValue;
}
