/** The candidates that a mistyped word most likely meant, best first; a distance of more than a third of it is no typo. Exported for tests. */
export function closest(word: string, candidates: readonly string[], max = 3): string[] {
  const limit = Math.max(1, Math.floor(word.length / 3));
  return candidates
    .map((candidate) => ({
      candidate,
      steps: candidate.startsWith(word) && word.length > 1 ? 1 : distance(word, candidate),
    }))
    .filter(({ steps }) => steps <= limit)
    .sort((a, b) => a.steps - b.steps || a.candidate.localeCompare(b.candidate))
    .slice(0, max)
    .map(({ candidate }) => candidate);
}

/** `; did you mean 'x'?`, or nothing. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const found = closest(word, candidates).map((candidate) => `'${candidate}'`);
  return found.length === 0 ? "" : `; did you mean ${found.join(" or ")}?`;
}

/** Levenshtein's distance, with a swap of neighbours as one step. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? 0;
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let steps = Math.min(at(i - 1, j) + 1, (row[j - 1] ?? 0) + 1, at(i - 1, j - 1) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        steps = Math.min(steps, at(i - 2, j - 2) + 1);
      row.push(steps);
    }
  }
  return at(a.length, b.length);
}
