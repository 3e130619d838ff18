import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import path from "node:path";

/** A name made from a program's contents, so that sandboxes that run an older one keep it. */
export function nameByContents({ name, bytes }: { readonly name: string; readonly bytes: Uint8Array }): string {
  return `${name}-${createHash("sha256").update(bytes).digest("hex").slice(0, 12)}`;
}

/** Writes a program whole, unless it is there. */
export async function keepProgram(file: string, bytes: Uint8Array): Promise<void> {
  if (existsSync(file)) return;
  await mkdir(path.dirname(file), { recursive: true, mode: 0o755 });
  const partial = `${file}.${process.pid}`;
  await writeFile(partial, bytes, { mode: 0o755 });
  await rename(partial, file);
}
