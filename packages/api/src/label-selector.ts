import type { LabelSelector } from "./builtin.gen.ts";
import { labelValueProblems, qualifiedNameProblems } from "./dns-name.ts";

/** One condition on one label. */
type LabelRequirement =
  | { readonly key: string; readonly operator: "in" | "notin"; readonly values: readonly string[] }
  | { readonly key: string; readonly operator: "exists" | "absent" }
  | { readonly key: string; readonly operator: "gt" | "lt"; readonly value: bigint };

/** Conditions that must all hold; "nothing" matches no object, an empty list matches all. */
export type ParsedLabelSelector = readonly LabelRequirement[] | "nothing";

const token = /\s*(?:(!=|==|=|!|\(|\)|,|>|<)|([^\s!=(),<>]+))\s*/y;

/** Parses the form of the `labelSelector` query parameter; throws a SyntaxError that names what is wrong. */
export function parseLabelSelector(text: string): readonly LabelRequirement[] {
  const parser = new Parser(tokenize(text));
  return text.trim() === "" ? [] : parser.requirements();
}

/** The requirements of the object form; no selector at all selects nothing, an empty one everything. */
export function labelSelectorOf(selector: LabelSelector | undefined | null): ParsedLabelSelector {
  if (selector === undefined || selector === null) return "nothing";
  const equalities = Object.entries(selector.matchLabels ?? {}).map(([key, value]) => requireIn(key, [value]));
  const expressions = (selector.matchExpressions ?? []).map((expression): LabelRequirement => {
    const { key, operator, values = [] } = expression;
    if ((operator === "In" || operator === "NotIn") && values.length === 0) {
      throw new SyntaxError(`label selector: ${key}: ${operator} needs at least one value`);
    }
    switch (operator) {
      case "In":
        return requireIn(key, values);
      case "NotIn":
        return { key: checkKey(key), operator: "notin", values: values.map(checkValue) };
      case "Exists":
        return { key: checkKey(key), operator: "exists" };
      case "DoesNotExist":
        return { key: checkKey(key), operator: "absent" };
      default:
        throw new SyntaxError(
          `label selector: "${operator}" is not an operator; use In, NotIn, Exists or DoesNotExist`,
        );
    }
  });
  return [...equalities, ...expressions];
}

/** Whether the labels meet the selector. A label that is not there meets `!=` and `notin`. */
export function matchesLabels(selector: ParsedLabelSelector, labels: Readonly<Record<string, string>> = {}): boolean {
  if (selector === "nothing") return false;
  return selector.every((requirement) => meets(requirement, labels));
}

function meets(requirement: LabelRequirement, labels: Readonly<Record<string, string>>): boolean {
  const value = Object.hasOwn(labels, requirement.key) ? labels[requirement.key] : undefined;
  switch (requirement.operator) {
    case "in":
      return value !== undefined && requirement.values.includes(value);
    case "notin":
      return value === undefined || !requirement.values.includes(value);
    case "exists":
      return value !== undefined;
    case "absent":
      return value === undefined;
    case "gt":
    case "lt": {
      if (value === undefined || !/^[+-]?\d+$/.test(value)) return false;
      const number = BigInt(value.replace("+", ""));
      return requirement.operator === "gt" ? number > requirement.value : number < requirement.value;
    }
    default:
      return requirement satisfies never;
  }
}

function requireIn(key: string, values: readonly string[]): LabelRequirement {
  return { key: checkKey(key), operator: "in", values: values.map(checkValue) };
}

function checkKey(key: string): string {
  const [problem] = qualifiedNameProblems(key);
  if (problem !== undefined) throw new SyntaxError(`label selector: key "${key}": ${problem}`);
  return key;
}

function checkValue(value: string): string {
  const [problem] = labelValueProblems(value);
  if (problem !== undefined) throw new SyntaxError(`label selector: value "${value}": ${problem}`);
  return value;
}

function tokenize(text: string): string[] {
  const tokens: string[] = [];
  token.lastIndex = 0;
  while (token.lastIndex < text.length) {
    const match = token.exec(text);
    if (match === null) throw new SyntaxError(`label selector "${text}" cannot be read`);
    tokens.push(match[1] ?? match[2] ?? "");
  }
  return tokens;
}

class Parser {
  readonly #tokens: readonly string[];
  #position = 0;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  requirements(): LabelRequirement[] {
    const found = [this.#requirement()];
    while (this.#peek() !== undefined) {
      this.#expect(",");
      found.push(this.#requirement());
    }
    return found;
  }

  #requirement(): LabelRequirement {
    if (this.#peek() === "!") {
      this.#next();
      return { key: checkKey(this.#word("a key")), operator: "absent" };
    }
    const key = checkKey(this.#word("a key"));
    const operator = this.#peek();
    if (operator === undefined || operator === ",") return { key, operator: "exists" };
    this.#next();
    switch (operator) {
      case "=":
      case "==":
        return { key, operator: "in", values: [this.#value()] };
      case "!=":
        return { key, operator: "notin", values: [this.#value()] };
      case "in":
      case "notin":
        return { key, operator, values: this.#set() };
      case ">":
      case "<":
        return { key, operator: operator === ">" ? "gt" : "lt", value: this.#integer() };
      default:
        throw new SyntaxError(`label selector: "${operator}" after "${key}"; use =, !=, in, notin, > or <`);
    }
  }

  /** `a=` is a comparison with the empty string. */
  #value(): string {
    const next = this.#peek();
    return next === undefined || next === "," ? "" : checkValue(this.#word("a value"));
  }

  #integer(): bigint {
    const word = this.#word("a number");
    if (!/^[+-]?\d+$/.test(word)) throw new SyntaxError(`label selector: "${word}" is not a whole number`);
    return BigInt(word.replace("+", ""));
  }

  #set(): string[] {
    this.#expect("(");
    const values: string[] = [];
    for (;;) {
      const next = this.#peek();
      values.push(next === "," || next === ")" ? "" : checkValue(this.#word("a value")));
      if (this.#peek() !== ",") break;
      this.#next();
    }
    this.#expect(")");
    return [...new Set(values)];
  }

  #word(what: string): string {
    const next = this.#next();
    if (next === undefined || /^[!=(),<>]/.test(next)) {
      throw new SyntaxError(`label selector: found ${next === undefined ? "the end" : `"${next}"`} instead of ${what}`);
    }
    return next;
  }

  #expect(wanted: string): void {
    const next = this.#next();
    if (next !== wanted) {
      throw new SyntaxError(
        `label selector: found ${next === undefined ? "the end" : `"${next}"`} instead of "${wanted}"`,
      );
    }
  }

  #peek(): string | undefined {
    return this.#tokens[this.#position];
  }

  #next(): string | undefined {
    return this.#tokens[this.#position++];
  }
}
