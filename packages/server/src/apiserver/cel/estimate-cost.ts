import { callCost } from "./call-costs.ts";
import { type Part, plain, type Sizes, scalar, sum, Unpriced } from "./cost-part.ts";
import {
  addSizes,
  bounded,
  eitherSize,
  exactly,
  type Size,
  scaled,
  traversalFactor,
  unknownSize,
} from "./cost-size.ts";
import { type DeclaredType, keyType } from "./declared-type.ts";

/** A node of a parsed rule. */
interface Node {
  readonly op: string;
  readonly args: unknown;
}

/** The greatest cost of one evaluation, as Kubernetes estimates it; undefined where something in it is not known. */
export function estimateCost(ast: object, root: DeclaredType, isOldOptional = false): number | undefined {
  const oldSelf: Part = { cost: 1, type: { ...plain("optional"), element: root }, path: ["oldSelf"] };
  try {
    return new Estimator(root).visit(ast as Node, isOldOptional ? new Map([["oldSelf", oldSelf]]) : new Map()).cost;
  } catch (error) {
    if (error instanceof Unpriced) return undefined;
    throw error;
  }
}

type Scope = ReadonlyMap<string, Part>;

const scalars = new Set(["bool", "double", "duration", "int", "timestamp", "uint"]);
const sized = new Set(["string", "bytes"]);

/** Base costs in the units of Kubernetes. */
const listCost = 10;
const mapCost = 30;

/** Walks a rule the way cel-go's checker does, and adds up what every step may cost. */
class Estimator implements Sizes {
  readonly #root: DeclaredType;

  constructor(root: DeclaredType) {
    this.#root = root;
  }

  /** The size of a part; Kubernetes asks the schema first, and what the value is like only then. */
  sizeOf({ size, path, type }: Part): Size {
    if (size !== undefined) return size;
    const declared = this.#declaredSize(path);
    if (declared !== undefined) return declared;
    return scalars.has(type.kind) ? exactly(1) : unknownSize;
  }

  elementSize({ path, type }: Part): Size | undefined {
    if (type.element === undefined) return undefined;
    return (path.length === 0 ? undefined : this.#declaredSize([...path, "@items"])) ?? unknownSize;
  }

  #declaredSize(path: readonly string[]): Size | undefined {
    if (path.length === 0) return undefined;
    let at: DeclaredType | undefined = this.#root;
    for (const step of path.slice(1)) {
      if (step === "@items" || step === "@values") at = at?.element;
      else if (step === "@keys") at = at?.kind === "map" ? keyType : undefined;
      else at = at?.fields?.get(step);
    }
    return at === undefined ? undefined : { min: 0, max: at.elementsMax };
  }

  visit(node: Node, scope: Scope): Part {
    const { op, args } = node;
    switch (op) {
      case "value":
        return literal(args);
      case "id":
        return this.#variable(args as string, scope);
      case ".":
        return this.#select(args as [Node, string], scope);
      case ".?":
        return this.#optional(args as [Node, string], scope);
      case "list":
        return this.#list(args as Node[], scope);
      case "map":
        return this.#map(args as [Node, Node][], scope);
      case "rcall":
        return this.#method(args as [string, Node, Node[]], scope);
      case "call":
        return this.#call(args as [string, Node[]], scope);
      default:
        return this.#operator(op, args, scope);
    }
  }

  #variable(name: string, scope: Scope): Part {
    const local = scope.get(name);
    if (local !== undefined) return { ...local, cost: 1 };
    if (name === "self" || name === "oldSelf") return { cost: 1, type: this.#root, path: [name] };
    throw new Unpriced(name);
  }

  #select([of, name]: [Node, string], scope: Scope): Part {
    const operand = this.visit(of, scope);
    const { kind, element, fields } = operand.type;
    const type = kind === "map" ? element : fields?.get(name);
    if (type === undefined) throw new Unpriced(name);
    return { cost: operand.cost + 1, type, path: [...operand.path, name] };
  }

  #optional([of, name]: [Node, string], scope: Scope): Part {
    const operand = this.visit(of, scope);
    const held = operand.type.kind === "optional" ? (operand.type.element ?? operand.type) : operand.type;
    const element = held.kind === "map" ? held.element : held.fields?.get(name);
    if (element === undefined) throw new Unpriced(name);
    return { cost: operand.cost + 1, type: { ...plain("optional"), element }, path: [] };
  }

  #list(items: readonly Node[], scope: Scope): Part {
    const parts = items.map((item) => this.visit(item, scope));
    const element = parts[0]?.type ?? plain("dyn");
    const type = { ...plain("list"), element };
    return { cost: sum(parts) + listCost, type, path: [], size: exactly(parts.length) };
  }

  #map(entries: readonly (readonly [Node, Node])[], scope: Scope): Part {
    const parts = entries.flat().map((item) => this.visit(item, scope));
    const type = { ...plain("map"), element: parts[1]?.type ?? plain("dyn") };
    return { cost: sum(parts) + mapCost, type, path: [], size: exactly(entries.length) };
  }

  #operator(op: string, args: unknown, scope: Scope): Part {
    const nodes = Array.isArray(args) ? (args as Node[]) : [args as Node];
    const parts = nodes.map((part) => this.visit(part, scope));
    const cost = sum(parts);
    const [left, right, third] = parts;
    if (left === undefined) throw new Unpriced(op);
    if (op === "!_") return scalar("bool", cost + 1);
    if (op === "-_") return scalar(left.type.kind, cost + 1);
    if (right === undefined) throw new Unpriced(op);
    if (op === "&&" || op === "||") return scalar("bool", cost);
    if (op === "==" || op === "!=") return scalar("bool", cost + this.#comparison(left, right));
    if (["<", "<=", ">", ">="].includes(op)) return scalar("bool", cost + this.#ordering(left, right));
    if (op === "?:" && third !== undefined) return this.#choice(left, right, third);
    if (op === "in") return scalar("bool", cost + this.#membership(right));
    if (op === "[]") return indexed(left, cost + 1);
    if (op === "+") return this.#addition(left, right, cost);
    if (["-", "*", "/", "%"].includes(op) && scalars.has(left.type.kind)) return scalar(left.type.kind, cost + 1);
    throw new Unpriced(op);
  }

  #comparison(left: Part, right: Part): number {
    const smaller = Math.min(this.sizeOf(left).max, this.sizeOf(right).max);
    return scaled({ min: 0, max: smaller }, traversalFactor);
  }

  #ordering(left: Part, right: Part): number {
    if (left.type.kind === "dyn" || right.type.kind === "dyn") throw new Unpriced("dyn");
    return sized.has(left.type.kind) ? this.#comparison(left, right) : 1;
  }

  #choice(condition: Part, then: Part, otherwise: Part): Part {
    const cost = bounded(condition.cost + Math.max(then.cost, otherwise.cost));
    return { cost, type: then.type, path: [], size: eitherSize(this.sizeOf(then), this.sizeOf(otherwise)) };
  }

  #membership(container: Part): number {
    if (container.type.kind === "list") return this.sizeOf(container).max;
    if (container.type.kind === "map") return 1;
    throw new Unpriced("in");
  }

  #addition(left: Part, right: Part, cost: number): Part {
    const { kind } = left.type;
    if (scalars.has(kind)) return scalar(kind, cost + 1);
    if (kind !== "list" && !sized.has(kind)) throw new Unpriced("+");
    const size = addSizes(this.sizeOf(left), this.sizeOf(right));
    const own = kind === "list" ? 1 : scaled(size, traversalFactor);
    return { cost: bounded(cost + own), type: left.type, path: [], size };
  }

  #call([name, args]: [string, Node[]], scope: Scope): Part {
    const [first] = args;
    // Whether a field is there costs what it takes to get to where it would be.
    if (name === "has" && first?.op === ".") return scalar("bool", this.visit((first.args as [Node])[0], scope).cost);
    const parts = args.map((argument) => this.visit(argument, scope));
    if (name === "dyn" && parts[0] !== undefined) return { ...parts[0], cost: parts[0].cost + 1, type: plain("dyn") };
    return callCost(this, { name, target: undefined, args: parts });
  }

  #method([name, of, args]: [string, Node, Node[]], scope: Scope): Part {
    const [variable, ...body] = args;
    if (macros.has(name) && variable?.op === "id") {
      if (body.length > (name === "map" ? 2 : 1)) throw new Unpriced(name);
      return this.#loop(name, this.visit(of, scope), { variable: variable.args as string, body, scope });
    }
    if (of.op === "id" && !scope.has(of.args as string) && of.args !== "self" && of.args !== "oldSelf")
      throw new Unpriced(`${String(of.args)}.${name}`);
    const target = this.visit(of, scope);
    if (target.type.kind === "optional") return this.#unwrap(name, target, args, scope);
    return callCost(this, { name, target, args: args.map((argument) => this.visit(argument, scope)) });
  }

  #unwrap(name: string, target: Part, args: readonly Node[], scope: Scope): Part {
    const cost = bounded(target.cost + sum(args.map((argument) => this.visit(argument, scope))) + 1);
    if (name === "hasValue") return scalar("bool", cost);
    if (name !== "value" && name !== "orValue") throw new Unpriced(name);
    return { cost, type: target.type.element ?? plain("dyn"), path: [] };
  }

  #loop(
    name: string,
    range: Part,
    { variable, body, scope }: { variable: string; body: readonly Node[]; scope: Scope },
  ): Part {
    const isList = range.type.kind === "list";
    if (!isList && range.type.kind !== "map") throw new Unpriced(name);
    const element = isList ? (range.type.element ?? plain("dyn")) : keyType;
    const item: Part = { cost: 1, type: element, path: [...range.path, isList ? "@items" : "@keys"] };
    const inner = new Map(scope).set(variable, item);
    const [first, second] = body.map((part) => this.visit(part, inner));
    if (first === undefined) throw new Unpriced(name);
    const count = this.sizeOf(range);
    const { init, step, result } = loopCosts(name, first.cost, second?.cost);
    const cost = bounded(range.cost + init + result + bounded(count.max * step));
    if (name !== "map" && name !== "filter") return { ...scalar("bool", cost), size: exactly(1) };
    const made = name === "filter" ? element : (second ?? first).type;
    return { cost, type: { ...plain("list"), element: made }, path: [], size: count };
  }
}

const macros = new Set(["all", "exists", "exists_one", "existsOne", "filter", "map"]);

/** What the loop behind a macro costs: to begin, for each element, and to end. */
function loopCosts(name: string, body: number, mapped?: number): { init: number; step: number; result: number } {
  // Adding one element to the list so far: the sum, the list so far, and a list of one.
  const append = (element: number): number => 1 + 1 + listCost + element;
  switch (name) {
    case "all":
      return { init: 0, step: 2 + 1 + body, result: 1 };
    case "exists":
      return { init: 0, step: 3 + 1 + body, result: 1 };
    case "filter":
      return { init: listCost, step: body + append(1), result: 1 };
    case "map":
      return { init: listCost, step: mapped === undefined ? append(body) : body + append(mapped), result: 1 };
    default:
      return { init: 0, step: body + 2, result: 2 };
  }
}

function indexed(of: Part, cost: number): Part {
  const { kind, element } = of.type;
  if (element === undefined) throw new Unpriced("[]");
  return { cost: bounded(cost), type: element, path: [...of.path, kind === "list" ? "@items" : "@values"] };
}

function literal(value: unknown): Part {
  switch (typeof value) {
    case "string":
      return { cost: 0, type: plain("string"), path: [], size: exactly(Array.from(value).length) };
    case "bigint":
      return { cost: 0, type: plain("int"), path: [], size: exactly(1), literal: value };
    case "number":
      return { cost: 0, type: plain("double"), path: [], size: exactly(1) };
    case "boolean":
      return { cost: 0, type: plain("bool"), path: [], size: exactly(1) };
    default:
      if (value === null) return { cost: 0, type: plain("null"), path: [], size: exactly(1) };
      throw new Unpriced("literal");
  }
}
