import type { Schema } from "../schema/schema.ts";
import { escapeFieldName } from "./cel-value.ts";

/** A node of a parsed rule, as far as the check reads it. */
interface Node {
  readonly op: string;
  readonly args: unknown;
  /** Offset of the node's operator or name. */
  readonly pos: number;
}

/** What is known of a value: the schema it has, the name of its type, or nothing. */
type Type =
  | { readonly kind: "schema"; readonly schema: Schema; readonly isResource: boolean }
  | { readonly kind: "scalar"; readonly name: string }
  | undefined;

type Scope = ReadonlyMap<string, Type>;

/** A rule that cannot be right for the schema it stands on. */
class TypeProblem extends Error {
  override readonly name = "TypeProblem";
}

/** Where a rule stands. */
export interface RulePlace {
  readonly schema: Schema;
  /** Whether the node is an object with apiVersion, kind and metadata of its own. */
  readonly isResource: boolean;
}

/**
 * The first thing in a rule that its schema rules out, in the words of Kubernetes: a field that is not there, a comparison
 * of different types, a result that is no truth value. What cannot be known counts as right.
 */
export function typeProblem(rule: string, ast: object, { schema, isResource }: RulePlace): string | undefined {
  const self: Type = scalarOf(schema) ?? { kind: "schema", schema, isResource };
  try {
    const result = new TypeChecker(rule).visit(
      ast as Node,
      new Map([
        ["self", self],
        ["oldSelf", self],
      ]),
    );
    return result === undefined || nameOf(result) === "bool" ? undefined : "cel expression must evaluate to a bool";
  } catch (error) {
    if (error instanceof TypeProblem) return error.message;
    throw error;
  }
}

const comparisons: Readonly<Record<string, string>> = {
  "==": "_==_",
  "!=": "_!=_",
  "<": "_<_",
  "<=": "_<=_",
  ">": "_>_",
  ">=": "_>=_",
};
const arithmetic = new Set(["+", "-", "*", "/", "%"]);
const macros = new Set(["all", "exists", "exists_one", "existsOne", "filter", "map"]);
const boolean: Type = { kind: "scalar", name: "bool" };

/** Two amounts of one type make one of it; of times and durations nothing is known here. */
function sameScalar([left, right]: readonly Type[]): Type {
  if (left?.kind !== "scalar" || right?.kind !== "scalar" || left.name !== right.name) return undefined;
  return ["int", "double", "string"].includes(left.name) ? left : undefined;
}

class TypeChecker {
  readonly #rule: string;

  constructor(rule: string) {
    this.#rule = rule;
  }

  visit(node: Node, scope: Scope): Type {
    const { op, args } = node;
    if (op === "id") return scope.get(args as string);
    if (op === "value") return literalType(args);
    if (op === ".") return this.#select(node, scope);
    if (op === "[]") return this.#index(node, scope);
    if (op === "rcall") return this.#method(node, scope);
    if (op === "call") return this.#call(args as [string, Node[]], scope);
    const parts = nodesIn(args).map((part) => this.visit(part, scope));
    if (Object.hasOwn(comparisons, op)) return this.#compare(node, parts);
    if (arithmetic.has(op)) return sameScalar(parts);
    return op === "&&" || op === "||" || op === "!" || op === "in" ? boolean : undefined;
  }

  #select(node: Node, scope: Scope): Type {
    const [of, name] = node.args as [Node, string];
    const type = this.visit(of, scope);
    if (type === undefined) return undefined;
    if (type.kind === "scalar") throw this.#problem(node.pos, `type '${type.name}' does not support field selection`);
    const found = fieldType(type, name);
    if (found === "undefined") throw this.#problem(node.pos, `undefined field '${name}'`);
    return found;
  }

  #index(node: Node, scope: Scope): Type {
    const [type] = nodesIn(node.args).map((part) => this.visit(part, scope));
    return type?.kind === "schema" ? elementType(type.schema) : undefined;
  }

  #call([name, args]: [string, Node[]], scope: Scope): Type {
    for (const argument of args) this.visit(argument, scope);
    if (name === "has") return boolean;
    return name === "size" ? { kind: "scalar", name: "int" } : undefined;
  }

  #method(node: Node, scope: Scope): Type {
    const [name, of, args] = node.args as [string, Node, Node[]];
    const type = this.visit(of, scope);
    const [variable] = args;
    if (!macros.has(name) || variable?.op !== "id" || args.length < 2) {
      // Other functions bind names of their own; what they are given is theirs to judge.
      return name === "size" ? { kind: "scalar", name: "int" } : undefined;
    }
    const element = type?.kind === "schema" ? iteratedType(type.schema) : undefined;
    const isPaired = args.length > 2 && args[1]?.op === "id";
    const inner = new Map(scope).set(variable.args as string, isPaired ? undefined : element);
    if (isPaired) inner.set(args[1]?.args as string, undefined);
    for (const part of args.slice(isPaired ? 2 : 1)) this.visit(part, inner);
    return name === "filter" ? type : name === "map" ? undefined : boolean;
  }

  #compare(node: Node, [left, right]: readonly Type[]): Type {
    const [a, b] = [nameOf(left), nameOf(right)];
    const isNumeric = numeric.has(a ?? "") && numeric.has(b ?? "");
    if (a !== undefined && b !== undefined && a !== b && a !== "null" && b !== "null" && !isNumeric) {
      const what = comparisons[node.op] ?? node.op;
      throw this.#problem(node.pos + 1, `found no matching overload for '${what}' applied to '(${a}, ${b})'`);
    }
    return boolean;
  }

  #problem(column: number, what: string): TypeProblem {
    const caret = `${".".repeat(Math.max(0, column - 1))}^`;
    return new TypeProblem(`ERROR: <input>:1:${column}: ${what}\n | ${this.#rule}\n | ${caret}`);
  }
}

const numeric = new Set(["int", "double", "uint"]);

function nodesIn(value: unknown): Node[] {
  if (Array.isArray(value)) return value.flatMap(nodesIn);
  return typeof value === "object" && value !== null && "op" in value ? [value as Node] : [];
}

function nameOf(type: Type): string | undefined {
  return type?.kind === "scalar" ? type.name : undefined;
}

function literalType(value: unknown): Type {
  switch (typeof value) {
    case "string":
      return { kind: "scalar", name: "string" };
    case "bigint":
      return { kind: "scalar", name: "int" };
    case "number":
      return { kind: "scalar", name: "double" };
    case "boolean":
      return boolean;
    default:
      return value === null ? { kind: "scalar", name: "null" } : undefined;
  }
}

const stringFormats: Readonly<Record<string, string>> = {
  "date-time": "timestamp",
  date: "timestamp",
  duration: "duration",
  byte: "bytes",
};

function scalarOf(schema: Schema): Type {
  if (schema["x-kubernetes-int-or-string"] === true) return undefined;
  switch (schema.type) {
    case "string":
      return { kind: "scalar", name: stringFormats[schema.format ?? ""] ?? "string" };
    case "integer":
      return { kind: "scalar", name: "int" };
    case "number":
      return { kind: "scalar", name: "double" };
    case "boolean":
      return boolean;
    default:
      return undefined;
  }
}

function typeOf(schema: Schema | undefined): Type {
  if (schema === undefined || schema["x-kubernetes-int-or-string"] === true) return undefined;
  const isResource = schema["x-kubernetes-embedded-resource"] === true;
  return scalarOf(schema) ?? { kind: "schema", schema, isResource };
}

const text: Schema = { type: "string" };
/** Rules see of an object's metadata only what names it. */
const metadata: Schema = { type: "object", properties: { name: text, generateName: text } };

function fieldType(
  { schema, isResource }: Exclude<Type, undefined> & { kind: "schema" },
  name: string,
): Type | "undefined" {
  if (isResource && (name === "apiVersion" || name === "kind")) return typeOf(text);
  if (isResource && name === "metadata") return typeOf(metadata);
  if (typeof schema.additionalProperties === "object") return typeOf(schema.additionalProperties);
  for (const [key, child] of Object.entries(schema.properties ?? {}))
    if (escapeFieldName(key) === name) return typeOf(child);
  const isOpen = schema["x-kubernetes-preserve-unknown-fields"] === true || schema.type !== "object";
  return isOpen || schema.additionalProperties === true ? undefined : "undefined";
}

function elementType(schema: Schema): Type {
  if (schema.type === "array") return typeOf(schema.items);
  return typeof schema.additionalProperties === "object" ? typeOf(schema.additionalProperties) : undefined;
}

/** A macro walks the items of a list and the keys of a map. */
function iteratedType(schema: Schema): Type {
  return schema.type === "array" ? typeOf(schema.items) : { kind: "scalar", name: "string" };
}
