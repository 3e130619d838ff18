/** How waits between tries grow. */
export interface BackoffOptions {
  /** The first wait, before jitter. */
  readonly firstMs: number;
  /** No wait is longer than this. */
  readonly maxMs: number;
}

/** Between passes over one key: quick enough to hide a lost race, slow enough to spare a server that is down. */
export const passBackoff: BackoffOptions = { firstMs: 5, maxMs: 60_000 };

/** Between attempts to list or watch: a server that restarts is found within a second, a dead one costs two calls a minute. */
export const watchBackoff: BackoffOptions = { firstMs: 100, maxMs: 30_000 };

/** The wait before try `failures + 1`: doubles each time and lies between half and the whole of that, so that clients spread. */
export function backoffMs(failures: number, { firstMs, maxMs }: BackoffOptions, random: () => number): number {
  const wholeMs = Math.min(maxMs, firstMs * 2 ** Math.min(failures, 52));
  return wholeMs * (0.5 + random() / 2);
}
