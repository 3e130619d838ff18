import { usageError } from "./cli-error.ts";

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Reads `90`, `30s`, `1h30m`, `250ms`; a number alone is seconds. */
export function parseDurationMs(flag: string, text: string): number {
  if (/^\d+(\.\d+)?$/.test(text) && Number(text) > 0) return Number(text) * 1000;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  const isWhole = parts.map(([part]) => part).join("") === text;
  const totalMs = parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * (unitMs[unit ?? ""] ?? 0), 0);
  if (!isWhole || parts.length === 0 || totalMs <= 0)
    throw usageError(`${flag}: '${text}' is not a time; write 30s, 5m or 1h30m`);
  return totalMs;
}
