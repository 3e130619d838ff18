/** The fields of `self` that a rule can reach; `true` stands for everything below. */
export type Projection = true | Map<string, Projection>;

const chainPattern = /\b(?:self|oldSelf)\b((?:\s*\.\s*\??\s*[A-Za-z_]\w*)*)(\s*[([])?/g;

/**
 * Which fields a rule names, so that only those are converted. A name in a string literal only adds to it; a value used
 * as a whole, indexed, or asked by a method counts with everything below.
 */
export function projectionOf(rule: string): Projection {
  const root = new Map<string, Projection>();
  for (const match of rule.matchAll(chainPattern)) {
    const names = (match[1] ?? "")
      .split(".")
      .map((name) => name.replace(/[\s?]/g, ""))
      .filter((name) => name !== "");
    // `self.list.all(...)`: the last name is a method of what comes before it.
    if (match[2]?.trim() === "(") names.pop();
    if (names.length === 0) return true;
    add(root, names);
  }
  return root;
}

function add(root: Map<string, Projection>, names: readonly string[]): void {
  let at = root;
  for (const [index, name] of names.entries()) {
    const known = at.get(name);
    if (known === true) return;
    if (index === names.length - 1) {
      at.set(name, true);
      return;
    }
    const next = known ?? new Map<string, Projection>();
    at.set(name, next);
    at = next;
  }
}
