import { chmodSync, mkdirSync } from "node:fs";
import path from "node:path";

/** Makes a directory and those above it that are missing, each open for the roles' users, whatever the caller's umask. */
export function ensureReadableDirectory(dir: string): void {
  const last = path.resolve(dir);
  const first = mkdirSync(last, { recursive: true });
  if (first === undefined) return;
  for (let made = last; made.length >= first.length; made = path.dirname(made)) chmodSync(made, 0o755);
}
