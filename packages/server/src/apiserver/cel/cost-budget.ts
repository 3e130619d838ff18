/** Thrown inside an evaluation whose cost passes the limit. */
export class CostExceeded extends Error {
  override readonly name = "CostExceeded";
}

/** Cost of one rule, at most; the same figure as Kubernetes. */
export const ruleCostMax = 1_000_000;

/** Cost of all rules of one object, at most; the same figure as Kubernetes. */
export const objectCostMax = 10_000_000;

/** Counts what an evaluation costs, in the units of Kubernetes. */
export class CostMeter {
  #spent = 0;
  #limit = ruleCostMax;

  /** Starts a count. */
  reset(limit: number): void {
    this.#spent = 0;
    this.#limit = limit;
  }

  get spent(): number {
    return this.#spent;
  }

  /** Adds to the count; throws CostExceeded beyond the limit. */
  spend(cost: number): void {
    this.#spent += cost;
    if (this.#spent > this.#limit) throw new CostExceeded("operation cancelled: actual cost limit exceeded");
  }
}

interface Node {
  readonly op: string;
  readonly args: unknown;
  evaluate: (evaluator: unknown, node: unknown, context: unknown) => unknown;
  /** What the node came to last, so that the node above can be charged by the size of what it was given. */
  lastResult?: unknown;
}

/** Makes every node of a checked expression report to the meter. */
export function meterExpression(root: object, meter: CostMeter): void {
  const seen = new Set<object>();
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null || seen.has(value)) return;
    seen.add(value);
    if (isNode(value)) wrap(value, meter);
    for (const child of Array.isArray(value) ? value : Object.values(value)) visit(child);
  };
  visit(root);
}

function isNode(value: object): value is Node {
  return "op" in value && "evaluate" in value && typeof value.evaluate === "function";
}

type Evaluate = Node["evaluate"];

/** The engine replaces `evaluate` when it learns more about a node, so the meter sits in an accessor. */
function wrap(node: Node, meter: CostMeter): void {
  let inner: Evaluate = node.evaluate;
  let isInside = false;
  const metered: Evaluate = (evaluator, self, context) => {
    // A node that learns more about itself evaluates itself anew; that is one step, not two.
    if (isInside) return inner.call(node, evaluator, self, context);
    isInside = true;
    try {
      const result = inner.call(node, evaluator, self, context);
      node.lastResult = result;
      meter.spend(stepCost(node, result));
      return result;
    } finally {
      isInside = false;
    }
  };
  Object.defineProperty(node, "evaluate", {
    get: () => metered,
    set: (next: Evaluate) => {
      inner = next;
    },
  });
}

/** Making a list or a map costs more than a step; Kubernetes' figures. */
const listCost = 10;
const mapCost = 30;

/** Reading a tenth of a string costs as much as a step. */
const perCharacter = 0.1;
const perPatternCharacter = 0.25;

function stepCost(node: Node, result: unknown): number {
  switch (node.op) {
    // Literals and what joins truth values cost nothing by themselves.
    case "value":
    case "&&":
    case "||":
    case "?:":
      return 0;
    case "list":
      return listCost;
    case "map":
      return mapCost;
    case "==":
    case "!=":
    case "<":
    case "<=":
    case ">":
    case ">=": {
      const [left = 0, right = 0] = operandSizes(node.args);
      return Math.max(1, Math.ceil(Math.min(left, right) * perCharacter));
    }
    case "in":
      return operandSizes(node.args)[1] ?? 0;
    case "+":
      return Math.max(1, Math.ceil(sizeOf(result) * perCharacter));
    case "call":
    case "rcall":
      return callCost(node.args as CallParts, result);
    default:
      return 1;
  }
}

type CallParts = readonly [name: string, ...rest: unknown[]];

/** Functions that look at every item of a list. */
const listFunctions = new Set([
  "isSorted",
  "sum",
  "max",
  "min",
  "indexOf",
  "lastIndexOf",
  "distinct",
  "sort",
  "reverse",
]);

/** Walks, and what each item costs besides the expression: its condition and its result so far. */
const walks = new Set(["all", "exists", "exists_one", "existsOne", "filter", "map"]);
const perItem = 3;

function callCost([name, ...operands]: CallParts, result: unknown): number {
  const [first = 0, second = 0] = operandSizes(operands);
  if (walks.has(name)) return first * perItem;
  if (listFunctions.has(name)) return Math.max(1, first);
  switch (name) {
    case "has":
    case "size":
      return 1;
    case "contains":
      return Math.ceil(first * perCharacter) * Math.ceil(second * perCharacter);
    case "startsWith":
    case "endsWith":
      return Math.ceil(second * perCharacter);
    case "matches":
    case "find":
    case "findAll":
      return Math.ceil((first + 1) * perCharacter) * Math.ceil(second * perPatternCharacter);
    default:
      // What a function makes was read or written once.
      return Math.max(1, Math.ceil(sizeOf(result) * perCharacter));
  }
}

function operandSizes(value: unknown): number[] {
  if (Array.isArray(value)) return value.flatMap(operandSizes);
  return typeof value === "object" && value !== null && isNode(value) ? [sizeOf(value.lastResult)] : [];
}

function sizeOf(value: unknown): number {
  if (typeof value === "string" || Array.isArray(value)) return value.length;
  if (value instanceof Map || value instanceof Set) return value.size;
  return typeof value === "object" && value !== null ? Object.keys(value).length : 1;
}
