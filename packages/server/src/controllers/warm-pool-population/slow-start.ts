/** How a batch went. */
export interface BatchResult {
  readonly succeeded: number;
  readonly errors: readonly unknown[];
}

/**
 * Runs `count` calls in batches of 1, 2, 4, ...: a batch with a failure is finished and is the last, so that a quota
 * or an admission rule that refuses everything costs one call and not hundreds. Stops before a batch when aborted.
 */
export async function slowStart(
  count: number,
  call: (index: number) => Promise<void>,
  signal: AbortSignal,
): Promise<BatchResult> {
  let succeeded = 0;
  let next = 0;
  for (let size = 1; next < count && !signal.aborted; size *= 2) {
    const batch = Array.from({ length: Math.min(size, count - next) }, (_unused, offset) => call(next + offset));
    next += batch.length;
    const settled = await Promise.allSettled(batch);
    const errors = settled.filter((result) => result.status === "rejected").map((result): unknown => result.reason);
    succeeded += settled.length - errors.length;
    if (errors.length > 0) return { succeeded, errors };
  }
  return { succeeded, errors: [] };
}
