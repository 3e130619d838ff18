interface Parsed {
  readonly numbers: readonly [major: number, minor: number, patch: number];
  readonly pre: readonly string[];
}

const pattern = /^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$/;

/** Whether a text is a version as releases have them. */
export function isVersion(text: string): boolean {
  return pattern.test(text);
}

function parse(version: string): Parsed {
  const match = pattern.exec(version);
  if (match === null) throw new Error(`${JSON.stringify(version)} is not a version`);
  const [, major, minor, patch, pre] = match;
  return { numbers: [Number(major), Number(minor), Number(patch)], pre: pre === undefined ? [] : pre.split(".") };
}

/** Negative, zero or positive: the order of semantic versioning. What stands behind a `+` does not count. */
export function compareVersions(left: string, right: string): number {
  const [a, b] = [parse(left), parse(right)];
  for (const [index, number] of a.numbers.entries()) {
    const difference = number - (b.numbers[index] ?? 0);
    if (difference !== 0) return difference;
  }
  // A version comes after all that lead to it.
  if (a.pre.length === 0 || b.pre.length === 0) return b.pre.length - a.pre.length;
  for (const [index, word] of a.pre.entries()) {
    const other = b.pre[index];
    if (other === undefined) return 1;
    const difference = compareWords(word, other);
    if (difference !== 0) return difference;
  }
  return a.pre.length - b.pre.length;
}

function compareWords(left: string, right: string): number {
  const [a, b] = [left, right].map((word) => (/^\d+$/.test(word) ? Number(word) : undefined));
  if (a !== undefined && b !== undefined) return a - b;
  // Numbers come before words.
  if (a !== undefined || b !== undefined) return a === undefined ? 1 : -1;
  return left === right ? 0 : left < right ? -1 : 1;
}

/**
 * Whether `to` is the release right before `from`: the one that was in place before, or by its number. The first of a minor version
 * follows every one of the minor version before it.
 */
export function isOneBack({ from, to, before }: { from: string; to: string; before: string | undefined }): boolean {
  if (compareVersions(to, from) >= 0) return false;
  if (before !== undefined && to === before) return true;
  const [a, b] = [parse(to).numbers, parse(from).numbers];
  if (a[0] !== b[0]) return false;
  if (a[1] === b[1]) return b[2] - a[2] <= 1;
  return b[1] - a[1] === 1 && b[2] === 0;
}
