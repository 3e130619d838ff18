import { Environment } from "@marcbachmann/cel-js";
import type { Schema } from "../schema/schema.ts";
import { type RulePlace, typeProblem } from "./check-types.ts";
import { CostExceeded, CostMeter, meterExpression } from "./cost-budget.ts";
import { errorText } from "./error-text.ts";
import { registerKubernetesFunctions } from "./functions.ts";
import { forgetOpenTypes } from "./open-types.ts";
import { type Projection, projectionOf } from "./projection.ts";

/** What an evaluation came to. */
export type Evaluation =
  | { readonly kind: "value"; readonly value: unknown; readonly cost: number }
  | { readonly kind: "error"; readonly message: string; readonly cost: number }
  | { readonly kind: "exceeded"; readonly message: string; readonly cost: number };

/** A rule ready to run. */
export interface CompiledRule {
  readonly kind: "rule";
  readonly usesOldSelf: boolean;
  /** The fields of self and oldSelf that the rule can reach. */
  readonly projection: Projection;
  evaluate(variables: { self: unknown; oldSelf: unknown }, costMax: number): Evaluation;
}

/** A rule that is not valid. */
export interface BrokenRule {
  readonly kind: "error";
  readonly message: string;
}

const environment = registerKubernetesFunctions(
  new Environment({
    enableOptionalTypes: true,
    homogeneousAggregateLiterals: false,
    limits: { maxAstNodes: 10_000, maxDepth: 250 },
  })
    .registerVariable("self", "dyn")
    .registerVariable("oldSelf", "dyn"),
);

/** Bound: rules compiled at most; CRDs are few, and the oldest goes first. */
const compiledMax = 2_000;
const compiledRules = new Map<string, CompiledRule | BrokenRule>();

/** What is wrong with a rule for the schema it stands on; undefined when nothing is known to be. */
export function checkRule(rule: string, place: RulePlace): string | undefined {
  const compiled = compileRule(rule, place.schema);
  if (compiled.kind === "error") return compiled.message;
  return typeProblem(rule, environment.parse(rule).ast, place);
}

/** A rule taken apart; undefined when it is none. */
export function parseRule(rule: string): object | undefined {
  try {
    return environment.parse(rule).ast;
  } catch {
    return undefined; // Who compiles it says what is wrong.
  }
}

/** Compiles a rule once. */
export function compileRule(rule: string, _schema: Schema): CompiledRule | BrokenRule {
  const known = compiledRules.get(rule);
  if (known !== undefined) return known;
  const [oldest] = compiledRules.keys();
  if (compiledRules.size >= compiledMax && oldest !== undefined) compiledRules.delete(oldest);
  const compiled = compile(rule);
  compiledRules.set(rule, compiled);
  return compiled;
}

function compile(rule: string): CompiledRule | BrokenRule {
  try {
    const program = environment.parse(rule);
    const checked = program.check();
    if (!checked.valid) return { kind: "error", message: firstLine(checked.error) };
    forgetOpenTypes(program.ast);
    const meter = new CostMeter();
    meterExpression(program.ast, meter);
    return {
      kind: "rule",
      usesOldSelf: /\boldSelf\b/.test(rule),
      projection: projectionOf(rule),
      evaluate: (variables, costMax) => run({ program, meter, costMax }, variables),
    };
  } catch (error) {
    return { kind: "error", message: firstLine(error) };
  }
}

interface Run {
  readonly program: (variables: Record<string, unknown>) => unknown;
  readonly meter: CostMeter;
  readonly costMax: number;
}

function run({ program, meter, costMax }: Run, variables: { self: unknown; oldSelf: unknown }): Evaluation {
  meter.reset(costMax);
  try {
    const value = program(variables);
    return { kind: "value", value, cost: meter.spent };
  } catch (error) {
    const kind = isExceeded(error) ? "exceeded" : "error";
    return { kind, message: errorText(error), cost: meter.spent };
  }
}

/** The engine may wrap what a node throws. */
function isExceeded(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause as Error | undefined) {
    if (cause instanceof CostExceeded) return true;
  }
  return false;
}

function firstLine(error: unknown): string {
  const [line = ""] = (error instanceof Error ? error.message : String(error)).split("\n", 1);
  return line;
}
