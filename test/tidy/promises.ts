/** A test that a document names as what holds a promise. */
export interface NamedTest {
  readonly file: string;
  readonly title: string;
}

/** The tests that a document's tables name, as `` `file`: title `` in their last column. */
export function namedTests(text: string): NamedTest[] {
  return [...text.matchAll(/^\|.*\| `([^`]+)`: (.+) \|$/gm)].map(([, file = "", title = ""]) => ({ file, title }));
}

/** Rows of the document's tables of promises; each must name a test. */
export function promiseRows(text: string): string[] {
  const [promised = ""] = text.split("\n## What is not promised");
  return promised
    .split("\n")
    .filter((line) => line.startsWith("|") && !line.startsWith("|---") && !line.startsWith("| promise |"));
}

/** Whether a file's text has a test of that title, in TypeScript or in Go. */
export function hasTest(text: string, { file, title }: NamedTest): boolean {
  if (file.endsWith(".go")) return text.includes(`func ${title}(t *testing.T)`);
  return text.includes(`"${title}"`);
}
