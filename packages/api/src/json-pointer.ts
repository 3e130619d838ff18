import { isJsonObject, type JsonValue, ownValue } from "./json-value.ts";
import { PatchError } from "./patch-error.ts";

/** The reference tokens of an RFC 6901 pointer; the empty text is the whole document. */
export function parseJsonPointer(pointer: string): string[] {
  if (pointer === "") return [];
  if (!pointer.startsWith("/")) throw new PatchError("malformed", `pointer "${pointer}" must be empty or begin with /`);
  return pointer
    .slice(1)
    .split("/")
    .map((token) => unescapeToken(token, pointer));
}

/** The value that the pointer leads to, or undefined where it leads nowhere. */
export function valueAtPointer(document: JsonValue, pointer: string): JsonValue | undefined {
  let value: JsonValue | undefined = document;
  for (const token of parseJsonPointer(pointer)) {
    if (Array.isArray(value)) value = value[tryParseIndex(token) ?? -1];
    else if (isJsonObject(value)) value = ownValue(value, token);
    else return undefined;
  }
  return value;
}

/** The list index that a token means: decimal, without leading zeros. */
export function tryParseIndex(token: string): number | undefined {
  return /^(0|[1-9]\d{0,15})$/.test(token) ? Number(token) : undefined;
}

function unescapeToken(token: string, pointer: string): string {
  if (/~(?![01])/.test(token))
    throw new PatchError("malformed", `pointer "${pointer}" has a ~ that is neither ~0 nor ~1`);
  return token.replaceAll("~1", "/").replaceAll("~0", "~");
}
