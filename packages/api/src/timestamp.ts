const shape = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?([Zz]|[+-]\d\d:\d\d)$/;
const nanosPerMs = 1_000_000n;

/** Nanoseconds since 1970 of an RFC 3339 time, or undefined for anything else. */
export function tryParseTimestampNanos(text: string): bigint | undefined {
  const match = shape.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction = "", zone = "Z"] = match;
  const utcMs = Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
  const date = new Date(utcMs);
  // The years 0 to 99 mean 1900 to 1999 to Date.UTC, and overflowing fields roll over; neither is a time that was written.
  date.setUTCFullYear(Number(year));
  const rolled = date.getUTCMonth() + 1 !== Number(month) || date.getUTCDate() !== Number(day);
  if (rolled || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return undefined;
  const offsetMs = offsetOf(zone);
  if (offsetMs === undefined) return undefined;
  const fractionNanos = BigInt(fraction.slice(0, 9).padEnd(9, "0"));
  return BigInt(date.getTime() - offsetMs) * nanosPerMs + fractionNanos;
}

function offsetOf(zone: string): number | undefined {
  if (zone === "Z" || zone === "z") return 0;
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(4, 6));
  if (hours > 23 || minutes > 59) return undefined;
  return (zone.startsWith("-") ? -1 : 1) * (hours * 60 + minutes) * 60_000;
}

/** Milliseconds since 1970 of an RFC 3339 time, rounded down, or undefined for anything else. */
export function tryParseTimestamp(text: string): number | undefined {
  const nanos = tryParseTimestampNanos(text);
  return nanos === undefined ? undefined : toMs(nanos);
}

function toMs(nanos: bigint): number {
  const remainder = nanos % nanosPerMs;
  return Number(remainder < 0n ? (nanos - remainder) / nanosPerMs - 1n : nanos / nanosPerMs);
}

/** The form of metadata and conditions: UTC, whole seconds, rounded down. */
export function formatTimestamp(ms: number): string {
  return `${new Date(Math.floor(ms / 1000) * 1000).toISOString().slice(0, 19)}Z`;
}

/** The form of leases and events: UTC, always six digits of a second. */
export function formatMicroTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 23)}000Z`;
}

/** Go's RFC3339Nano: UTC, as many digits of a second as are not zero at the end. */
function formatTimestampNanos(nanos: bigint): string {
  const remainder = ((nanos % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const seconds = new Date(Number((nanos - remainder) / nanosPerMs)).toISOString().slice(0, 19);
  const digits = remainder.toString().padStart(9, "0").replace(/0+$/, "");
  return digits === "" ? `${seconds}Z` : `${seconds}.${digits}Z`;
}

/** An instant with its milliseconds in the same form. */
export function formatTimestampMs(ms: number): string {
  return formatTimestampNanos(BigInt(Math.floor(ms)) * nanosPerMs);
}
