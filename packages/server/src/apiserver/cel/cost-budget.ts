/** Thrown inside an evaluation whose cost passes the limit. */
export class CostExceeded extends Error {
  override readonly name = "CostExceeded";
}

/** Cost of one rule, at most; the same figure as Kubernetes. */
export const ruleCostMax = 1_000_000;

/** Cost of all rules of one object, at most; the same figure as Kubernetes. */
export const objectCostMax = 10_000_000;

/** Counts the steps of an evaluation: one per node of the expression each time it is reached. */
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
  evaluate: (evaluator: unknown, node: unknown, context: unknown) => unknown;
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
  const metered: Evaluate = (evaluator, self, context) => {
    meter.spend(1);
    const result = inner.call(node, evaluator, self, context);
    // Long strings and lists cost with their size, as they do in Kubernetes.
    if (typeof result === "string") meter.spend(Math.ceil(result.length / 10));
    else if (Array.isArray(result)) meter.spend(result.length);
    return result;
  };
  Object.defineProperty(node, "evaluate", {
    get: () => metered,
    set: (next: Evaluate) => {
      inner = next;
    },
  });
}
