import { parseQuantity, Quantity, tryParseQuantity } from "@agent-sandbox/api";
import type { Environment } from "@marcbachmann/cel-js";
import { goRegExp } from "../schema/go-regexp.ts";
import { registerAddressFunctions } from "./address-functions.ts";
import { formatText } from "./format.ts";
import { registerSetFunctions } from "./set-functions.ts";

/** Adds the functions that Kubernetes offers to rules beyond the language itself. */
export function registerKubernetesFunctions(environment: Environment): Environment {
  registerText(environment);
  registerLists(environment);
  registerQuantity(environment);
  registerUrl(environment);
  registerAddressFunctions(environment);
  registerSetFunctions(environment, isSame);
  return environment;
}

function pattern(text: string): RegExp {
  const expression = goRegExp(text);
  if (expression === undefined) throw new Error(`error parsing regexp: ${text}`);
  return expression;
}

function registerText(environment: Environment): void {
  environment
    .registerFunction(
      "string.find(string): string",
      (text: string, regex: string) => pattern(regex).exec(text)?.[0] ?? "",
    )
    .registerFunction("string.findAll(string): list<string>", (text: string, regex: string) =>
      findAll(text, regex, -1n),
    )
    .registerFunction("string.findAll(string, int): list<string>", findAll)
    .registerFunction("string.replace(string, string): string", (text: string, from: string, to: string) =>
      text.replaceAll(from, to),
    )
    .registerFunction("string.replace(string, string, int): string", replaceSome)
    .registerFunction("string.charAt(int): string", (text: string, index: bigint) => text.charAt(Number(index)))
    .registerFunction("string.reverse(): string", (text: string) => Array.from(text).reverse().join(""))
    .registerFunction("string.format(list<dyn>): string", formatText);
}

function findAll(text: string, regex: string, limit: bigint): string[] {
  const expression = pattern(regex);
  const global = new RegExp(expression.source, `${expression.flags.replace("g", "")}g`);
  const found = [...text.matchAll(global)].map((match) => match[0]);
  return limit < 0n ? found : found.slice(0, Number(limit));
}

function replaceSome(text: string, from: string, to: string, count: bigint): string {
  if (count < 0n) return text.replaceAll(from, to);
  let result = text;
  let at = 0;
  for (let done = 0n; done < count; done++) {
    const found = result.indexOf(from, at);
    if (found < 0) return result;
    result = result.slice(0, found) + to + result.slice(found + from.length);
    at = found + to.length;
  }
  return result;
}

function registerLists(environment: Environment): void {
  environment
    .registerFunction("list.sum(): dyn", sum)
    .registerFunction("list.min(): dyn", (list: never[]) => extreme(list, -1))
    .registerFunction("list.max(): dyn", (list: never[]) => extreme(list, 1))
    .registerFunction("list.isSorted(): bool", (list: never[]) =>
      list.every((item, index) => index === 0 || compare(list[index - 1] as never, item) <= 0),
    )
    .registerFunction("list.indexOf(dyn): int", (list: unknown[], item: unknown) =>
      BigInt(list.findIndex((other) => isSame(other, item))),
    )
    .registerFunction("list.lastIndexOf(dyn): int", (list: unknown[], item: unknown) =>
      BigInt(list.findLastIndex((other) => isSame(other, item))),
    )
    .registerFunction("list.distinct(): list<dyn>", (list: unknown[]) =>
      list.filter((item, index) => list.findIndex((other) => isSame(other, item)) === index),
    )
    .registerFunction("list.reverse(): list<dyn>", (list: unknown[]) => [...list].reverse())
    .registerFunction("list.sort(): list<dyn>", (list: never[]) => [...list].sort(compare))
    .registerFunction("list.slice(int, int): list<dyn>", (list: unknown[], from: bigint, to: bigint) =>
      list.slice(Number(from), Number(to)),
    )
    .registerFunction("list.flatten(): list<dyn>", (list: unknown[]) => list.flat());
}

function sum(list: (bigint | number)[]): bigint | number {
  const [first] = list;
  if (first === undefined) return 0n;
  return typeof first === "bigint"
    ? (list as bigint[]).reduce((total, item) => total + item, 0n)
    : (list as number[]).reduce((total, item) => total + item, 0);
}

function compare(a: bigint | number | string, b: bigint | number | string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function extreme(list: (bigint | number | string)[], direction: number): bigint | number | string {
  if (list.length === 0) throw new Error(`${direction < 0 ? "min" : "max"} called on empty list`);
  return list.reduce((best, item) => (compare(item, best) * direction > 0 ? item : best));
}

function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  const text = (value: unknown): string =>
    JSON.stringify(value, (_key, item: unknown) => (typeof item === "bigint" ? `${item}n` : item));
  return typeof a === "object" && typeof b === "object" && text(a) === text(b);
}

function registerQuantity(environment: Environment): void {
  environment
    .registerType("Quantity", { ctor: Quantity, fields: {} })
    .registerFunction("quantity(string): Quantity", (text: string) => parseQuantity(text))
    .registerFunction("isQuantity(string): bool", (text: string) => tryParseQuantity(text) !== undefined)
    .registerFunction("Quantity.isInteger(): bool", (q: Quantity) => q.nanos % 1_000_000_000n === 0n)
    .registerFunction("Quantity.asInteger(): int", (q: Quantity) => q.units)
    .registerFunction("Quantity.asApproximateFloat(): double", (q: Quantity) => Number(q.nanos) / 1e9)
    .registerFunction("Quantity.sign(): int", (q: Quantity) => (q.nanos === 0n ? 0n : q.nanos > 0n ? 1n : -1n))
    .registerFunction("Quantity.compareTo(Quantity): int", (a: Quantity, b: Quantity) => BigInt(a.compare(b)))
    .registerFunction("Quantity.isLessThan(Quantity): bool", (a: Quantity, b: Quantity) => a.compare(b) < 0)
    .registerFunction("Quantity.isGreaterThan(Quantity): bool", (a: Quantity, b: Quantity) => a.compare(b) > 0)
    .registerFunction("Quantity.add(Quantity): Quantity", (a: Quantity, b: Quantity) => a.add(b))
    .registerFunction("Quantity.sub(Quantity): Quantity", (a: Quantity, b: Quantity) => a.sub(b))
    .registerFunction("Quantity.add(int): Quantity", (a: Quantity, b: bigint) =>
      a.add(new Quantity(b * 1_000_000_000n)),
    )
    .registerFunction("Quantity.sub(int): Quantity", (a: Quantity, b: bigint) =>
      a.sub(new Quantity(b * 1_000_000_000n)),
    );
}

function registerUrl(environment: Environment): void {
  environment
    .registerType("URL", { ctor: URL, fields: {} })
    .registerFunction("url(string): URL", (text: string) => new URL(text))
    .registerFunction("isURL(string): bool", (text: string) => URL.canParse(text))
    .registerFunction("URL.getScheme(): string", (url: URL) => url.protocol.slice(0, -1))
    .registerFunction("URL.getHost(): string", (url: URL) => url.host)
    .registerFunction("URL.getHostname(): string", (url: URL) => url.hostname)
    .registerFunction("URL.getPort(): string", (url: URL) => url.port)
    .registerFunction("URL.getEscapedPath(): string", (url: URL) => url.pathname)
    .registerFunction(
      "URL.getQuery(): map",
      (url: URL) => new Map([...url.searchParams.keys()].map((key) => [key, url.searchParams.getAll(key)])),
    );
}
