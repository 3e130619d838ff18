import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

/** Runs that somebody wrote down below a benchmark's own text begin with this. */
const historyHeading = "\n## Every run";

/** Writes a benchmark's result, and keeps the earlier runs that stand below it. */
export function record(name: string, text: string): void {
  const file = path.join(import.meta.dirname, "../results", `${name}.md`);
  const before = existsSync(file) ? readFileSync(file, "utf8") : "";
  const start = before.indexOf(historyHeading);
  writeFileSync(file, start === -1 ? text : text + before.slice(start));
}
