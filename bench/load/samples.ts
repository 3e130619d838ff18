/** The value below which a share of the samples lies. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** `p50 | p99` for a row of a table, in milliseconds. */
export function cells(samples: readonly number[], digits = 2): string {
  return [0.5, 0.99].map((share) => quantile(samples, share).toFixed(digits)).join(" | ");
}
