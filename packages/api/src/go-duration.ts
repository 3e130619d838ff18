const unitNanos: Record<string, bigint> = {
  ns: 1n,
  us: 1_000n,
  µs: 1_000n,
  μs: 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
};
const nanosPerMs = 1_000_000n;
const part = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;

/** Milliseconds of a Go duration such as `1h30m` or `250ms`, or undefined for anything else. */
export function tryParseGoDuration(text: string): number | undefined {
  const negative = text.startsWith("-");
  const body = negative || text.startsWith("+") ? text.slice(1) : text;
  if (body === "0") return 0;
  if (body === "") return undefined;
  let nanos = 0n;
  part.lastIndex = 0;
  while (part.lastIndex < body.length) {
    const match = part.exec(body);
    if (match === null) return undefined;
    const [, number = "", unit = ""] = match;
    const [whole = "", fraction = ""] = number.split(".");
    const scale = unitNanos[unit] ?? 0n;
    nanos += BigInt(whole === "" ? "0" : whole) * scale;
    nanos += (BigInt(fraction === "" ? "0" : fraction) * scale) / 10n ** BigInt(fraction.length);
  }
  const ms = Number(nanos / nanosPerMs) + Number(nanos % nanosPerMs) / 1e6;
  return negative ? -ms : ms;
}

/** The duration as Go prints it: `1h30m0s`, `1.5s`, `250ms`, `0s`. */
export function formatGoDuration(ms: number): string {
  const whole = Math.trunc(ms);
  const nanos = BigInt(whole) * nanosPerMs + BigInt(Math.round((ms - whole) * 1e6));
  if (nanos === 0n) return "0s";
  const sign = nanos < 0n ? "-" : "";
  const size = nanos < 0n ? -nanos : nanos;
  if (size < 1_000n) return `${sign}${size}ns`;
  if (size < 1_000_000n) return `${sign}${decimal(size, 1_000n)}µs`;
  if (size < 1_000_000_000n) return `${sign}${decimal(size, 1_000_000n)}ms`;
  const minutes = size / 60_000_000_000n;
  const seconds = `${decimal(size % 60_000_000_000n, 1_000_000_000n)}s`;
  if (minutes === 0n) return sign + seconds;
  return minutes < 60n ? `${sign}${minutes}m${seconds}` : `${sign}${minutes / 60n}h${minutes % 60n}m${seconds}`;
}

function decimal(value: bigint, unit: bigint): string {
  const digits = (value % unit)
    .toString()
    .padStart(unit.toString().length - 1, "0")
    .replace(/0+$/, "");
  return digits === "" ? `${value / unit}` : `${value / unit}.${digits}`;
}
