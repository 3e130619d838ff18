import type { KubeObject } from "@agent-sandbox/api/meta";
import type { Context } from "../context.ts";
import type { Kind } from "../objects/kinds.ts";
import { formatTable } from "./table.ts";

/** How to print. */
export interface PrintOptions {
  readonly output?: "json" | "yaml" | "name" | "wide";
  readonly isAllNamespaces?: boolean;
  /** One object was asked for by name: no list around it. */
  readonly isSingle?: boolean;
}

/** Prints objects of one kind in the format that was asked for. */
export async function printObjects(
  context: Context,
  kind: Kind,
  objects: readonly KubeObject[],
  options: PrintOptions,
): Promise<void> {
  const { stdout, stderr } = context;
  const { output, isSingle = false } = options;
  if (output === "json" || output === "yaml") {
    const { formatValue } = await import("./format-value.ts");
    const [only] = objects;
    const value =
      isSingle && objects.length === 1 ? only : { apiVersion: "v1", kind: "List", items: objects.map(withoutNoise) };
    stdout.write(await formatValue(isSingle && only !== undefined ? withoutNoise(value as KubeObject) : value, output));
    return;
  }
  if (output === "name") {
    for (const { metadata } of objects) stdout.write(`${kind.resource.resource}/${metadata.name ?? ""}\n`);
    return;
  }
  if (objects.length === 0) {
    stderr.write(`no ${kind.resource.resource} found\n`);
    return;
  }
  stdout.write(tableOf(context, kind, objects, options));
}

/** Objects of one kind among several. */
export interface ObjectGroup {
  readonly kind: Kind;
  readonly objects: readonly KubeObject[];
}

/** Prints objects of several kinds: one list, or a table for each kind whose names say which it is. */
export async function printGroups(
  context: Context,
  groups: readonly ObjectGroup[],
  options: PrintOptions,
): Promise<void> {
  const { stdout, stderr } = context;
  const { output } = options;
  if (output === "json" || output === "yaml") {
    const { formatValue } = await import("./format-value.ts");
    const items = groups.flatMap(({ objects }) => objects.map(withoutNoise));
    stdout.write(await formatValue({ apiVersion: "v1", kind: "List", items }, output));
    return;
  }
  const present = groups.filter(({ objects }) => objects.length > 0);
  if (present.length === 0) stderr.write(`no ${groups.map(({ kind }) => kind.resource.resource).join(", ")} found\n`);
  for (const [index, { kind, objects }] of present.entries()) {
    if (output === "name") await printObjects(context, kind, objects, options);
    else stdout.write(`${index === 0 ? "" : "\n"}${tableOf(context, kind, objects.map(withKind(kind)), options)}`);
  }
}

/** The object with its kind before its name, as `-o name` has it. */
function withKind({ resource }: Kind): (object: KubeObject) => KubeObject {
  return (object) => ({
    ...object,
    metadata: { ...object.metadata, name: `${resource.resource}/${object.metadata.name ?? ""}` },
  });
}

/** The table of some objects. */
export function tableOf(
  context: Context,
  kind: Kind,
  objects: readonly KubeObject[],
  { output, isAllNamespaces = false }: PrintOptions,
): string {
  const nowMs = context.nowMs();
  const columns = kind.columns.filter(({ isWide }) => isWide !== true || output === "wide");
  const hasNamespace = isAllNamespaces && kind.resource.namespaced;
  const titles = [...(hasNamespace ? ["NAMESPACE"] : []), ...columns.map(({ title }) => title)];
  const rows = objects.map((object) => [
    ...(hasNamespace ? [object.metadata.namespace ?? ""] : []),
    ...columns.map(({ cell }) => cell(object, nowMs)),
  ]);
  const { isTTY, columns: width } = context.stdout;
  return formatTable(titles, rows, isTTY === true && output !== "wide" ? { width } : {});
}

/** `managedFields` is for programs and is left out of what people read. */
function withoutNoise(object: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata } as KubeObject;
}
