import { isJsonObject, type JsonValue, jsonEqual, ownValue } from "@agent-sandbox/api";

type Step = (values: JsonValue[]) => JsonValue[];

/** A compiled path; gives every value it finds. */
export type JsonPath = (root: JsonValue) => JsonValue[];

const tokenPattern =
  /\.?\[\?\(\s*@(?<field>[^=!<>]*?)\s*(?<op>==|!=)\s*(?<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]|\[(?<index>-?\d+|\*)\]|\[(?<quote>['"])(?<key>.*?)\k<quote>\]|\.(?<name>(?:\\.|[^.[\\])+)|(?<root>^\$)/y;

/** Compiles the JSONPath subset that printer columns use; undefined when it is not understood. */
export function compileJsonPath(path: string): JsonPath | undefined {
  const text = path.replace(/^\{(.*)\}$/, "$1");
  const steps: Step[] = [];
  // A pattern of its own, because a filter compiles another path meanwhile.
  const tokens = new RegExp(tokenPattern);
  while (tokens.lastIndex < text.length) {
    const match = tokens.exec(text);
    if (match === null) return undefined;
    const step = stepOf(match.groups ?? {});
    if (step !== undefined) steps.push(step);
  }
  return (root) => steps.reduce<JsonValue[]>((values, step) => step(values), [root]);
}

function stepOf(groups: Record<string, string | undefined>): Step | undefined {
  const { field, op, value, index, key, name } = groups;
  if (field !== undefined) return filterStep({ path: field, isEqual: op === "==", wanted: literal(value ?? "") });
  if (index === "*" || name === "*") return (values) => values.flatMap(children);
  if (index !== undefined) return (values) => values.flatMap((item) => at(item, Number(index)));
  const property = key ?? name?.replace(/\\(.)/g, "$1");
  if (property === undefined) return undefined;
  return (values) => values.flatMap((item) => fieldOf(item, property));
}

function filterStep({ path, isEqual, wanted }: { path: string; isEqual: boolean; wanted: JsonValue }): Step {
  const inner = path === "" ? (root: JsonValue) => [root] : compileJsonPath(path);
  return (values) =>
    values
      .flatMap((item) => (Array.isArray(item) ? item : []))
      .filter((item) => (inner?.(item) ?? []).some((found) => jsonEqual(found, wanted)) === isEqual);
}

function literal(text: string): JsonValue {
  if (/^['"]/.test(text)) return text.slice(1, -1);
  if (text === "true" || text === "false") return text === "true";
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

function children(value: JsonValue): JsonValue[] {
  if (Array.isArray(value)) return value;
  return isJsonObject(value) ? Object.values(value).filter((item) => item !== undefined) : [];
}

function at(value: JsonValue, index: number): JsonValue[] {
  const item = Array.isArray(value) ? value.at(index) : undefined;
  return item === undefined ? [] : [item];
}

function fieldOf(value: JsonValue, name: string): JsonValue[] {
  const item = isJsonObject(value) ? ownValue(value, name) : undefined;
  return item === undefined ? [] : [item];
}
