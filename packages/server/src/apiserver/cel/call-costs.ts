import { type Part, plain, type Sizes, sum, Unpriced } from "./cost-part.ts";
import {
  addSizes,
  bounded,
  exactly,
  multiplySizes,
  patternFactor,
  type Size,
  scaled,
  traversalFactor,
} from "./cost-size.ts";

/** A call of a function, or of a method of `target`. */
export interface Call {
  readonly name: string;
  readonly target: Part | undefined;
  readonly args: readonly Part[];
}

/** What a call comes to: its own cost, its type, its size where that is known. */
interface Result {
  readonly cost: number;
  readonly kind: string;
  readonly size?: Size;
  /** The type of a list's items. */
  readonly element?: string;
}

type Rule = (sizes: Sizes, target: Part, args: readonly Part[]) => Result;

/** What a call costs, arguments included. */
export function callCost(sizes: Sizes, { name, target, args }: Call): Part {
  const result = resultOf(sizes, { name, target, args });
  const given = sum(target === undefined ? args : [target, ...args]);
  const type = plain(result.kind);
  const element = result.element === undefined ? undefined : plain(result.element);
  return {
    cost: bounded(given + result.cost),
    type: element === undefined ? type : { ...type, element },
    path: [],
    ...(result.size !== undefined && { size: result.size }),
  };
}

function resultOf(sizes: Sizes, { name, target, args }: Call): Result {
  const [first] = args;
  if (target === undefined) {
    if (first !== undefined && Object.hasOwn(parsers, name)) {
      const size = sizes.sizeOf(first);
      return { cost: scaled(size, traversalFactor), kind: parsers[name] ?? "dyn" };
    }
    const kind = Object.hasOwn(functions, name) ? functions[name] : undefined;
    if (kind !== undefined && first?.type.kind !== "bytes") return { cost: 1, kind };
    throw new Unpriced(name);
  }
  const rule = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (rule !== undefined) return rule(sizes, target, args);
  const kind = Object.hasOwn(accessors, name) ? accessors[name] : undefined;
  if (kind !== undefined) return { cost: 1, kind };
  throw new Unpriced(name);
}

/** Functions that read their text once. */
const parsers: Readonly<Record<string, string>> = {
  quantity: "quantity",
  isQuantity: "bool",
  url: "url",
  ip: "ip",
  isIP: "bool",
  cidr: "cidr",
  isCIDR: "bool",
  semver: "semver",
  isSemver: "bool",
};

/** Functions that cost one, and what they give. */
const functions: Readonly<Record<string, string>> = {
  size: "int",
  int: "int",
  uint: "uint",
  double: "double",
  string: "string",
  bool: "bool",
  type: "type",
  duration: "duration",
  timestamp: "timestamp",
  isURL: "bool",
};

/** Methods that cost one, and what they give. */
const accessors: Readonly<Record<string, string>> = {
  size: "int",
  charAt: "string",
  getFullYear: "int",
  getMonth: "int",
  getDate: "int",
  getDayOfMonth: "int",
  getDayOfWeek: "int",
  getDayOfYear: "int",
  getHours: "int",
  getMinutes: "int",
  getSeconds: "int",
  getMilliseconds: "int",
  sign: "int",
  asInteger: "int",
  isInteger: "bool",
  asApproximateFloat: "double",
  isGreaterThan: "bool",
  isLessThan: "bool",
  compareTo: "int",
  family: "int",
  prefixLength: "int",
  isUnspecified: "bool",
  isLoopback: "bool",
  isGlobalUnicast: "bool",
  getScheme: "string",
  getHostname: "string",
  getHost: "string",
  getPort: "string",
  getEscapedPath: "string",
};

const affix: Rule = (sizes, _target, [part]) => ({
  cost: scaled(sizeOr(sizes, part), traversalFactor),
  kind: "bool",
});

/** Text that is read once and gives a text of at most its size. */
const rewritten: Rule = (sizes, target) => {
  const size = sizes.sizeOf(target);
  return { cost: scaled(size, traversalFactor), kind: "string", size };
};

/** A pattern is run over text; one is added so that an expensive pattern on no text still counts. */
function patternCost(sizes: Sizes, target: Part, pattern: Part | undefined): number {
  const text = scaled(addSizes(sizes.sizeOf(target), exactly(1)), traversalFactor);
  return bounded(text * scaled(sizeOr(sizes, pattern), patternFactor));
}

/** Every item is looked at, and read where it is text. */
function perItem(kind: (target: Part) => string): Rule {
  return (sizes, target) => {
    const count = sizes.sizeOf(target);
    const element = target.type.element;
    if (element === undefined) return { cost: scaled(count, traversalFactor), kind: kind(target) };
    const isText = element.kind === "string" || element.kind === "bytes";
    const size = isText ? sizes.elementSize(target) : undefined;
    const each = 1 + (size === undefined ? 0 : scaled(size, traversalFactor));
    return { cost: bounded(count.max * each), kind: kind(target) };
  };
}

const itemKind = ({ type }: Part): string => type.element?.kind ?? "dyn";

const methods: Readonly<Record<string, Rule>> = {
  startsWith: affix,
  endsWith: affix,
  contains: (sizes, target, [part]) => {
    const own = scaled(sizes.sizeOf(target), traversalFactor);
    return { cost: bounded(own * scaled(sizeOr(sizes, part), traversalFactor)), kind: "bool" };
  },
  matches: (sizes, target, [pattern]) => ({ cost: patternCost(sizes, target, pattern), kind: "bool" }),
  find: (sizes, target, [pattern]) => ({
    cost: patternCost(sizes, target, pattern),
    kind: "string",
    size: { min: 0, max: sizes.sizeOf(target).max },
  }),
  findAll: (sizes, target, [pattern]) => ({
    cost: patternCost(sizes, target, pattern),
    kind: "list",
    element: "string",
    size: { min: 0, max: sizes.sizeOf(target).max },
  }),
  lowerAscii: rewritten,
  upperAscii: rewritten,
  substring: rewritten,
  trim: rewritten,
  split: (sizes, target, [, count]) => {
    const size = sizes.sizeOf(target);
    const max = count?.literal === undefined ? size.max : Number(count.literal);
    return { cost: scaled(size, 2 * traversalFactor), kind: "list", element: "string", size: { min: 0, max } };
  },
  replace: (sizes, target, [from, to]) => {
    const size = sizes.sizeOf(target);
    const result = { min: 0, max: replacedMax(size, sizeOr(sizes, from), sizeOr(sizes, to)) };
    return { cost: scaled(size, 2 * traversalFactor), kind: "string", size: result };
  },
  join: (sizes, target, [separator]) => {
    const count = sizes.sizeOf(target);
    const items = multiplySizes(count, sizes.elementSize(target) ?? exactly(0));
    const between = { min: Math.max(0, count.min - 1), max: Math.max(0, count.max - 1) };
    const separators = separator === undefined ? exactly(0) : multiplySizes(sizes.sizeOf(separator), between);
    const size = addSizes(items, separators);
    return { cost: scaled(size, traversalFactor), kind: "string", size };
  },
  isSorted: perItem(() => "bool"),
  sum: perItem(itemKind),
  min: perItem(itemKind),
  max: perItem(itemKind),
  indexOf: perItem(() => "int"),
  lastIndexOf: perItem(() => "int"),
};

function sizeOr(sizes: Sizes, part: Part | undefined): Size {
  return part === undefined ? exactly(0) : sizes.sizeOf(part);
}

/** The longest text that replacing can make. */
function replacedMax(text: Size, from: Size, to: Size): number {
  if (from.min === 0) return bounded((text.max + 1) * to.max + text.max);
  if (to.max <= from.min) return text.max;
  return bounded(Math.ceil(text.max / from.min) * to.max);
}
