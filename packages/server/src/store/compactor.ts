import type { StoreClock } from "./expiry.ts";

/** What compaction leaves alone. */
export interface Retention {
  readonly revisionsMin: number;
  readonly ageMinMs: number;
}

/** Clients that lost their connection come back within this; a hundred thousand revisions are some 200 MB of log. */
export const retentionDefault: Retention = { revisionsMin: 100_000, ageMinMs: 5 * 60_000 };

/** How often a mark is set and compaction considered: the age of what is kept is known to within this. */
const everyMs = 60_000;

interface Mark {
  readonly atMs: number;
  readonly revision: number;
}

/**
 * Decides, once a minute, how far to compact. After a restart nothing is known to be old, so the first compaction
 * waits for `ageMinMs`. Bound: one mark per minute of `ageMinMs`.
 */
export function startCompactor(options: {
  readonly clock: StoreClock;
  readonly retention: Retention;
  readonly revision: () => number;
  readonly compact: (toRevision: number) => void;
}): () => void {
  const { clock, retention, revision, compact } = options;
  let marks: Mark[] = [{ atMs: clock.nowMs(), revision: revision() }];
  let dispose = clock.setTimer(everyMs, tick);
  function tick(): void {
    const nowMs = clock.nowMs();
    const old = marks.findLast(({ atMs }) => nowMs - atMs >= retention.ageMinMs);
    if (old !== undefined) {
      marks = marks.slice(marks.indexOf(old));
      const toRevision = Math.min(old.revision, revision() - retention.revisionsMin);
      if (toRevision > 0) compact(toRevision);
    }
    marks.push({ atMs: nowMs, revision: revision() });
    dispose = clock.setTimer(everyMs, tick);
  }
  return () => dispose();
}
