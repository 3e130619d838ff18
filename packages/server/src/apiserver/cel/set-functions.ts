import type { Environment } from "@marcbachmann/cel-js";

/** What rules write before the dot: `sets.contains(a, b)`. */
class SetFunctions {}

/** Adds `sets.contains`, `sets.equivalent` and `sets.intersects`. */
export function registerSetFunctions(environment: Environment, isSame: (a: unknown, b: unknown) => boolean): void {
  const has = (list: readonly unknown[], item: unknown): boolean => list.some((other) => isSame(other, item));
  const contains = (_: SetFunctions, list: unknown[], sub: unknown[]): boolean => sub.every((item) => has(list, item));
  environment
    .registerType("SetFunctions", { ctor: SetFunctions, fields: {} })
    .registerConstant("sets", "SetFunctions", new SetFunctions())
    .registerFunction("SetFunctions.contains(list<dyn>, list<dyn>): bool", contains)
    .registerFunction(
      "SetFunctions.equivalent(list<dyn>, list<dyn>): bool",
      (self: SetFunctions, a: unknown[], b: unknown[]) => contains(self, a, b) && contains(self, b, a),
    )
    .registerFunction(
      "SetFunctions.intersects(list<dyn>, list<dyn>): bool",
      (_: SetFunctions, a: unknown[], b: unknown[]) => a.some((item) => has(b, item)),
    );
}
