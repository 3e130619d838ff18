/** First wait after a crash; the kubelet's figure. */
const backoffFirstMs = 10_000;

/** Longest wait between restarts; the kubelet's figure. */
const backoffMaxMs = 300_000;

/** A run of this length forgets the crashes before it; the kubelet's figure (twice the longest wait). Exported for tests. */
export const backoffForgetMs = 600_000;

/** How long to wait before the next start after `crashes` ends in a row; the first restart is immediate. */
export function restartDelayMs(crashes: number): number {
  if (crashes <= 1) return 0;
  return Math.min(backoffMaxMs, backoffFirstMs * 2 ** Math.min(crashes - 2, 10));
}

/** The count after one more end, given how long the run was. */
export function countCrash(crashes: number, runMs: number): number {
  return runMs >= backoffForgetMs ? 1 : crashes + 1;
}
