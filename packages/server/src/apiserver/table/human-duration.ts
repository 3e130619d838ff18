const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;
const year = 365 * day;

/** A duration as kubectl shows ages: two units while they say something, one afterwards. Exported for tests. */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < -1) return "<invalid>";
  if (seconds < 0) return "0s";
  if (seconds < 2 * minute) return `${seconds}s`;
  const minutes = Math.floor(seconds / minute);
  if (minutes < 10) return twoUnits({ large: minutes, largeUnit: "m", small: seconds % minute, smallUnit: "s" });
  if (minutes < 3 * 60) return `${minutes}m`;
  const hours = Math.floor(seconds / hour);
  if (hours < 8)
    return twoUnits({ large: hours, largeUnit: "h", small: Math.floor((seconds % hour) / minute), smallUnit: "m" });
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 24 * 8) return twoUnits({ large: days, largeUnit: "d", small: hours % 24, smallUnit: "h" });
  if (hours < 24 * 365 * 2) return `${days}d`;
  const years = Math.floor(seconds / year);
  if (hours < 24 * 365 * 8) return twoUnits({ large: years, largeUnit: "y", small: days % 365, smallUnit: "d" });
  return `${years}y`;
}

/** The age of an RFC 3339 time, or `<unknown>`. */
export function ageOf(time: string | undefined, nowMs: number): string {
  const thenMs = Date.parse(time ?? "");
  return Number.isNaN(thenMs) ? "<unknown>" : humanDuration(nowMs - thenMs);
}

function twoUnits(parts: { large: number; largeUnit: string; small: number; smallUnit: string }): string {
  const { large, largeUnit, small, smallUnit } = parts;
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit}${small}${smallUnit}`;
}
