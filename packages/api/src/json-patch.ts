import { parseJsonPointer, tryParseIndex, valueAtPointer } from "./json-pointer.ts";
import { isJsonObject, type JsonValue, jsonEqual, ownValue, withKey, withoutKey } from "./json-value.ts";
import { PatchError } from "./patch-error.ts";

/** One operation of RFC 6902. */
type JsonPatchOperation =
  | { op: "add" | "replace" | "test"; path: string; value: JsonValue }
  | { op: "remove"; path: string }
  | { op: "move" | "copy"; from: string; path: string };

/** Copies may grow a document exponentially; Kubernetes stops them at the size of three megabytes, and so do we. */
const copyBytesMax = 3 * 1024 * 1024;

/** Applies the operations in order to a copy of the document; throws a PatchError that names the operation. */
export function jsonPatch(document: JsonValue, operations: unknown): JsonValue {
  if (!Array.isArray(operations)) throw new PatchError("malformed", "a JSON patch must be a list of operations");
  let copiedBytes = 0;
  return operations.reduce<JsonValue>((current, raw: unknown, index) => {
    const operation = parseOperation(raw, index);
    if (operation.op === "copy") {
      copiedBytes += JSON.stringify(valueAtPointer(current, operation.from) ?? null).length;
      if (copiedBytes > copyBytesMax) throw new PatchError("malformed", `operation ${index} copies too much`);
    }
    return applyOperation(current, operation, index);
  }, document);
}

function parseOperation(raw: unknown, index: number): JsonPatchOperation {
  const problem = (what: string) => new PatchError("malformed", `operation ${index}: ${what}`);
  if (!isJsonObject(raw)) throw problem("must be an object");
  const { op, path, from } = raw;
  if (typeof path !== "string") throw problem("path must be a string");
  switch (op) {
    case "add":
    case "replace":
    case "test": {
      const value = ownValue(raw, "value");
      if (value === undefined) throw problem(`${op} needs a value`);
      return { op, path, value };
    }
    case "remove":
      return { op, path };
    case "move":
    case "copy":
      if (typeof from !== "string") throw problem(`${op} needs from`);
      return { op, path, from };
    default:
      throw problem(`${JSON.stringify(op)} is not an operation; use add, remove, replace, move, copy or test`);
  }
}

function applyOperation(document: JsonValue, operation: JsonPatchOperation, index: number): JsonValue {
  const { op, path } = operation;
  switch (op) {
    case "add":
      return edit(document, path, { at: "insert", value: operation.value });
    case "remove":
      return edit(document, path, { at: "remove" });
    case "replace":
      return edit(document, path, { at: "replace", value: operation.value });
    case "test":
      if (jsonEqual(valueAtPointer(document, path), operation.value)) return document;
      throw new PatchError("test-failed", `operation ${index}: testing value ${path} failed`);
    case "copy":
      return edit(document, path, { at: "insert", value: structuredClone(mustFind(document, operation.from)) });
    case "move": {
      if (path !== operation.from && path.startsWith(`${operation.from}/`)) {
        throw new PatchError("malformed", `operation ${index}: ${operation.from} cannot be moved into itself`);
      }
      const value = mustFind(document, operation.from);
      return edit(edit(document, operation.from, { at: "remove" }), path, { at: "insert", value });
    }
    default:
      return op satisfies never;
  }
}

function mustFind(document: JsonValue, pointer: string): JsonValue {
  const value = valueAtPointer(document, pointer);
  if (value === undefined) throw new PatchError("missing", `there is nothing at ${pointer}`);
  return value;
}

type Edit = { at: "insert" | "replace"; value: JsonValue } | { at: "remove" };

function edit(document: JsonValue, pointer: string, change: Edit): JsonValue {
  return editAt(document, parseJsonPointer(pointer), change, pointer);
}

function editAt(parent: JsonValue, tokens: readonly string[], change: Edit, pointer: string): JsonValue {
  const [token, ...rest] = tokens;
  if (token === undefined) return change.at === "remove" ? null : change.value;
  if (Array.isArray(parent)) return editList(parent, token, { rest, change, pointer });
  if (!isJsonObject(parent)) throw new PatchError("missing", `there is nothing to change at ${pointer}`);
  const child = ownValue(parent, token);
  if (rest.length > 0) {
    if (child === undefined) throw new PatchError("missing", `the parent of ${pointer} is missing`);
    return withKey(parent, token, editAt(child, rest, change, pointer));
  }
  if (change.at !== "insert" && child === undefined) throw new PatchError("missing", `there is nothing at ${pointer}`);
  return change.at === "remove" ? withoutKey(parent, token) : withKey(parent, token, change.value);
}

interface ListEdit {
  readonly rest: readonly string[];
  readonly change: Edit;
  readonly pointer: string;
}

function editList(list: JsonValue[], token: string, { rest, change, pointer }: ListEdit): JsonValue[] {
  const inserting = rest.length === 0 && change.at === "insert";
  const index = inserting && token === "-" ? list.length : tryParseIndex(token);
  const item = index === undefined ? undefined : list[index];
  const inBounds = index !== undefined && (inserting ? index <= list.length : index < list.length);
  if (!inBounds) throw new PatchError("missing", `the list at ${pointer} has no place "${token}"`);
  if (rest.length > 0) return list.with(index, editAt(item ?? null, rest, change, pointer));
  if (change.at === "remove") return list.toSpliced(index, 1);
  return change.at === "insert" ? list.toSpliced(index, 0, change.value) : list.with(index, change.value);
}
