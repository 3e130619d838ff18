/** How large something is at least and at most. */
export interface Size {
  readonly min: number;
  readonly max: number;
}

/** The largest figure that Kubernetes counts to; more stays there. */
const countMax = 2 ** 64;

/** Of what nothing is known. */
export const unknownSize: Size = { min: 0, max: countMax };

/** A size that is known. */
export function exactly(value: number): Size {
  return { min: value, max: value };
}

/** Either of two. */
export function eitherSize(a: Size, b: Size): Size {
  return { min: Math.min(a.min, b.min), max: Math.max(a.max, b.max) };
}

/** Both, one after the other. */
export function addSizes(a: Size, b: Size): Size {
  return { min: bounded(a.min + b.min), max: bounded(a.max + b.max) };
}

/** One for each of the other. */
export function multiplySizes(a: Size, b: Size): Size {
  return { min: bounded(a.min * b.min), max: bounded(a.max * b.max) };
}

/** What going through something costs, at most; a part of a unit counts as one. */
export function scaled({ max }: Size, factor: number): number {
  // Enough digits for the sum to be what Go's is; without this 0.1 * 3 would cost one more.
  return bounded(Math.ceil(Number((max * factor).toPrecision(15))));
}

/** Keeps a figure countable. */
export function bounded(value: number): number {
  return Math.min(value, countMax);
}

/** Cost of reading one character, and of one character of a pattern, in the units of Kubernetes. */
export const traversalFactor = 0.1;
export const patternFactor = 0.25;
