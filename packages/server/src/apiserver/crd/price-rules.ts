import { parseRule } from "../cel/compile-rule.ts";
import { bounded } from "../cel/cost-size.ts";
import { type DeclaredType, declaredType, requestMaxBytes } from "../cel/declared-type.ts";
import { estimateCost } from "../cel/estimate-cost.ts";
import { type FieldError, forbiddenField } from "../schema/field-error.ts";
import type { Schema, ValidationRule } from "../schema/schema.ts";

/** What one rule, and all rules of a definition, may be estimated to cost; the same figures as Kubernetes. */
const ruleCostLimit = 10_000_000;
const schemaCostLimit = 100_000_000;
/** How many of the most expensive rules are named. */
const namedMax = 4;

/** Rules that may become too expensive for the objects a schema allows, each alone or all together. */
export function priceRules(root: Schema, path: string): FieldError[] {
  const prices: Price[] = [];
  collect(root, { path, isResource: true, cardinality: 1 }, prices);
  const errors = prices
    .filter(({ cost }) => cost > ruleCostLimit)
    .map(({ field, what, cost }) => forbiddenField(field, tooExpensive(`estimated ${what} cost`, cost, ruleCostLimit)));
  const total = prices.reduce((sum, { cost }) => bounded(sum + cost), 0);
  if (total <= schemaCostLimit) return errors;
  const expensive = prices.filter(({ cost }) => cost >= schemaCostLimit / 100).sort((a, b) => b.cost - a.cost);
  for (const { field } of expensive.slice(0, namedMax)) {
    const blame = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    errors.push(forbiddenField(field, blame));
  }
  const whole = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
  return [...errors, forbiddenField(path, tooExpensive(whole, total, schemaCostLimit))];
}

interface Price {
  readonly field: string;
  readonly what: "rule" | "messageExpression";
  readonly cost: number;
}

interface Place {
  readonly path: string;
  readonly isResource: boolean;
  /** How often the node can occur in one object, by the bounds of what it stands in; undefined where one has none. */
  readonly cardinality: number | undefined;
}

function collect(node: Schema, { path, isResource, cardinality }: Place, prices: Price[]): void {
  const rules = node["x-kubernetes-validations"] ?? [];
  const type = rules.length === 0 ? undefined : declaredType(node, isResource);
  if (type !== undefined) {
    const times = cardinality ?? Math.floor(requestMaxBytes / (type.serializedMin + 1));
    for (const [index, rule] of rules.entries())
      prices.push(...pricesOf(rule, { type, times, path: `${path}.x-kubernetes-validations[${index}]` }));
  }
  const factor = occurrences(node);
  const inner = cardinality === undefined || factor === undefined ? undefined : bounded(cardinality * factor);
  const below = (child: Schema, at: string): void => {
    const isEmbedded = child["x-kubernetes-embedded-resource"] === true;
    collect(child, { path: at, isResource: isEmbedded, cardinality: inner }, prices);
  };
  for (const [key, child] of Object.entries(node.properties ?? {})) below(child, `${path}.properties[${key}]`);
  if (node.items !== undefined) below(node.items, `${path}.items`);
  if (typeof node.additionalProperties === "object") below(node.additionalProperties, `${path}.additionalProperties`);
}

/** How often what is inside a node occurs for each time the node does. */
function occurrences({ type, additionalProperties, maxProperties, maxItems }: Schema): number | undefined {
  if (type === "array") return maxItems;
  return typeof additionalProperties === "object" ? maxProperties : 1;
}

function pricesOf(
  rule: ValidationRule,
  { type, times, path }: { type: DeclaredType; times: number; path: string },
): Price[] {
  const price = (text: string): number | undefined => {
    const ast = parseRule(text);
    return ast === undefined ? undefined : estimateCost(ast, type, rule.optionalOldSelf === true);
  };
  const cost = price(rule.rule);
  const prices: Price[] = [];
  if (cost !== undefined) prices.push({ field: `${path}.rule`, what: "rule", cost: bounded(cost * times) });
  // A message is made once for a rule that failed, however often it could fail.
  const message = rule.messageExpression === undefined ? undefined : price(rule.messageExpression);
  if (message !== undefined)
    prices.push({ field: `${path}.messageExpression`, what: "messageExpression", cost: message });
  return prices;
}

function tooExpensive(what: string, cost: number, limit: number): string {
  const factor = cost / limit;
  const shown = factor > 100 ? "more than 100x" : factor < 1.5 ? `${factor.toFixed(6)}x` : `${factor.toFixed(1)}x`;
  return `${what} exceeds budget by factor of ${shown} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)`;
}
