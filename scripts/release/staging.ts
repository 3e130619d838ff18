import { cpSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";

/** What a package is made of: the version of the whole release and the directory its files go to. */
export interface PackageOptions {
  readonly version: string;
  readonly outDir: string;
}

/** Lends a directory for the sources of a package as they are released; it is gone afterwards. */
export async function inStaging<T>(work: (dir: string) => Promise<T> | T): Promise<T> {
  const dir = mkdtempSync(path.join(os.tmpdir(), "agent-sandbox-release-"));
  try {
    return await work(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Copies a file or a folder without what interpreters and compilers leave beside sources. */
export function copySources(from: string, to: string): void {
  mkdirSync(path.dirname(to), { recursive: true });
  cpSync(from, to, { recursive: true, filter: (file) => !leftovers.has(path.basename(file)) });
}

const leftovers = new Set(["__pycache__", "node_modules", ".DS_Store"]);
