import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";

/** Copies a program to a name made from its contents, so that sandboxes that run an older one keep it; returns where it is. */
export async function keepProgram(file: string, dir: string): Promise<string> {
  const bytes = await readFile(file);
  const name = `${path.basename(file)}-${createHash("sha256").update(bytes).digest("hex").slice(0, 12)}`;
  const kept = path.join(dir, name);
  if (existsSync(kept)) return kept;
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const partial = `${kept}.${process.pid}`;
  await writeFile(partial, bytes, { mode: 0o755 });
  await rename(partial, kept);
  return kept;
}
