/** What the engine says and what Kubernetes says of the same mistake. */
const sentences: ReadonlyArray<readonly [RegExp, string]> = [
  [/^No such key: index out of bounds, index (-?\d+).*$/, "index out of bounds: $1"],
  [/^No such key: (.*)$/, "no such key: $1"],
  [/^(\w+)\(\) type error: cannot convert to (\w+)$/, "type conversion error from 'string' to '$2'"],
];

/** The first line of a failed evaluation, in Kubernetes' words where they are known. */
export function errorText(error: unknown): string {
  const [line = ""] = (error instanceof Error ? error.message : String(error)).split("\n", 1);
  const found = sentences.find(([pattern]) => pattern.test(line));
  return found === undefined ? line : line.replace(found[0], found[1]);
}
