import { bounded, type Size } from "./cost-size.ts";
import type { DeclaredType } from "./declared-type.ts";

/** What is known of a part of a rule: its greatest cost, its type, where it comes from and how large it is. */
export interface Part {
  readonly cost: number;
  readonly type: DeclaredType;
  /** From a variable to here, as Kubernetes writes it; empty for what was computed. */
  readonly path: readonly string[];
  readonly size?: Size;
  /** A number that is written in the rule. */
  readonly literal?: bigint;
}

/** Tells how large parts are. */
export interface Sizes {
  sizeOf(part: Part): Size;
  /** The size of a list's items; undefined of what is no list. */
  elementSize(list: Part): Size | undefined;
}

/** Thrown for a part whose cost is not known; such a rule is not priced. */
export class Unpriced extends Error {
  override readonly name = "Unpriced";
}

/** A type of which nothing but its name is known. */
export function plain(kind: string): DeclaredType {
  return { kind, elementsMax: 0, serializedMin: 0 };
}

/** A result of a type that has no size. */
export function scalar(kind: string, cost: number): Part {
  return { cost: bounded(cost), type: plain(kind), path: [] };
}

/** What all of them cost. */
export function sum(parts: readonly Part[]): number {
  return bounded(parts.reduce((total, { cost }) => total + cost, 0));
}
