/** How a quantity prints: with powers of 1000, powers of 1024, or an exponent. */
type QuantityFormat = "DecimalSI" | "BinarySI" | "DecimalExponent";

/** Nanos are the smallest step: Kubernetes rounds anything finer up, so that who asks for something gets something. */
const nanosPerUnit = 10n ** 9n;
/** Kubernetes caps binary quantities at the largest int64. */
const nanosMax = (2n ** 63n - 1n) * nanosPerUnit;

const decimalSuffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"] as const;
const binarySuffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] as const;
const shape = /^([+-]?)(\d*)(?:\.(\d*))?(?:([eE][+-]?\d+)|([KMGTPE]i)|([numkMGTPE]))?$/;
/** Larger exponents are refused, smaller ones all mean one nano: no resource has such sizes, and the arithmetic would only cost time. */
const exponentLimit = 999;

/** An exact amount of a resource, as Kubernetes counts it. */
export class Quantity {
  /** The amount in billionths. */
  readonly nanos: bigint;
  readonly format: QuantityFormat;

  constructor(nanos: bigint, format: QuantityFormat = "DecimalSI") {
    this.nanos = nanos;
    this.format = format;
  }

  /** The amount in whole units, rounded away from zero. */
  get units(): bigint {
    return divideUp(this.nanos, nanosPerUnit);
  }

  /** The amount in thousandths, rounded away from zero. */
  get millis(): bigint {
    return divideUp(this.nanos, 1_000_000n);
  }

  /** The sum; it prints in this quantity's format, or in the other's where this is zero. */
  add(other: Quantity): Quantity {
    return new Quantity(this.nanos + other.nanos, this.nanos === 0n ? other.format : this.format);
  }

  /** The difference; it prints in this quantity's format, or in the other's where this is zero. */
  sub(other: Quantity): Quantity {
    return new Quantity(this.nanos - other.nanos, this.nanos === 0n ? other.format : this.format);
  }

  /** Negative, zero or positive, as this is less than, equal to or greater than the other. */
  compare(other: Quantity): number {
    if (this.nanos === other.nanos) return 0;
    return this.nanos < other.nanos ? -1 : 1;
  }

  /** Canonical form: no fraction, the largest suffix that loses nothing. */
  toString(): string {
    if (this.nanos === 0n) return "0";
    const small = this.nanos > -1024n * nanosPerUnit && this.nanos < 1024n * nanosPerUnit;
    const whole = this.nanos % nanosPerUnit === 0n;
    if (this.format === "BinarySI" && !small && whole) return printBinary(this.nanos / nanosPerUnit);
    return printDecimal(this.nanos, this.format === "DecimalExponent");
  }

  /** JSON carries quantities as strings. */
  toJSON(): string {
    return this.toString();
  }
}

/** Nothing of a resource. */
export const zeroQuantity = new Quantity(0n);

/** The quantity that a string (or a JSON number) tells of; throws a SyntaxError where it tells of none. */
export function parseQuantity(value: string | number): Quantity {
  const parsed = tryParseQuantity(value);
  if (parsed === undefined) throw new SyntaxError(`"${value}" is not a quantity; write a number like 500m, 1.5 or 2Gi`);
  return parsed;
}

/** As parseQuantity, with undefined for what is no quantity. */
export function tryParseQuantity(value: string | number): Quantity | undefined {
  const match = shape.exec(String(value));
  if (match === null) return undefined;
  const [, sign = "", whole = "", fraction = "", exponent, binary, decimal] = match;
  if (whole === "" && fraction === "") return undefined;
  if (exponent !== undefined && Number(exponent.slice(1)) > exponentLimit) return undefined;
  const { multiplier, divisor, format } = scaleOf({ exponent, binary, decimal });
  const digits = BigInt(whole + fraction) * multiplier * nanosPerUnit;
  const exact = divideUp(digits, divisor * 10n ** BigInt(fraction.length));
  const capped = format === "BinarySI" && exact > nanosMax ? nanosMax : exact;
  const tiny = format === "BinarySI" && capped > 0n && capped < nanosPerUnit;
  return new Quantity(sign === "-" ? -capped : capped, tiny ? "DecimalSI" : format);
}

interface Scale {
  readonly multiplier: bigint;
  readonly divisor: bigint;
  readonly format: QuantityFormat;
}

function scaleOf(suffix: {
  exponent: string | undefined;
  binary: string | undefined;
  decimal: string | undefined;
}): Scale {
  if (suffix.binary !== undefined) {
    const power = binarySuffixes.findIndex((candidate) => candidate === suffix.binary);
    return { multiplier: 1024n ** BigInt(power), divisor: 1n, format: "BinarySI" };
  }
  if (suffix.exponent !== undefined) return powerOfTen(Number(suffix.exponent.slice(1)), "DecimalExponent");
  const index = decimalSuffixes.findIndex((candidate) => candidate === (suffix.decimal ?? ""));
  return powerOfTen((index - 3) * 3, "DecimalSI");
}

function powerOfTen(exponent: number, format: QuantityFormat): Scale {
  const size = 10n ** BigInt(Math.min(Math.abs(exponent), exponentLimit));
  return exponent < 0 ? { multiplier: 1n, divisor: size, format } : { multiplier: size, divisor: 1n, format };
}

function printDecimal(nanos: bigint, withExponent: boolean): string {
  let [mantissa, exponent] = [nanos, -9];
  while ((withExponent || exponent < 18) && mantissa % 1000n === 0n)
    [mantissa, exponent] = [mantissa / 1000n, exponent + 3];
  if (!withExponent) return `${mantissa}${decimalSuffixes[exponent / 3 + 3]}`;
  return exponent === 0 ? `${mantissa}` : `${mantissa}e${exponent}`;
}

function printBinary(units: bigint): string {
  let [mantissa, power] = [units, 0];
  while (power < binarySuffixes.length - 1 && mantissa % 1024n === 0n)
    [mantissa, power] = [mantissa / 1024n, power + 1];
  return `${mantissa}${binarySuffixes[power]}`;
}

/** Division that rounds away from zero. */
function divideUp(value: bigint, divisor: bigint): bigint {
  const quotient = value / divisor;
  if (quotient * divisor === value) return quotient;
  return value < 0n ? quotient - 1n : quotient + 1n;
}
