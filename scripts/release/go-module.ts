import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { rootDir } from "../checkout.ts";
import type { PackageOptions } from "./staging.ts";
import { type ZipEntry, zipOf } from "./zip.ts";

const moduleDir = path.join(rootDir, "sdks/go");

/**
 * Writes the Go SDK as a module proxy serves it, below `goproxy` of the output directory; `GOPROXY=file://…/goproxy` reads it.
 * Returns the names of the files.
 */
export function buildGoModule({ version, outDir }: PackageOptions): readonly string[] {
  const mod = readFileSync(path.join(moduleDir, "go.mod"), "utf8");
  const name = /^module (\S+)$/m.exec(mod)?.[1];
  if (name === undefined) throw new Error("sdks/go/go.mod names no module");
  const tag = `v${version}`;
  // A proxy escapes upper case letters of a path; ours has none, and a rename that brings some must not go unnoticed.
  if (name !== name.toLowerCase()) throw new Error(`module ${name} has upper case letters, which a proxy escapes`);
  const files: Readonly<Record<string, string | Buffer>> = {
    list: `${tag}\n`,
    [`${tag}.info`]: `${JSON.stringify({ Version: tag })}\n`,
    [`${tag}.mod`]: mod,
    [`${tag}.zip`]: zipOf(moduleEntries(`${name}@${tag}`)),
  };
  const folder = path.join("goproxy", name, "@v");
  mkdirSync(path.join(outDir, folder), { recursive: true });
  return Object.entries(files).map(([file, content]) => {
    writeFileSync(path.join(outDir, folder, file), content);
    return path.join(folder, file);
  });
}

/** Every file of the module below `prefix`, sorted, with the repository's licence, which the go command looks for there. */
function moduleEntries(prefix: string): readonly ZipEntry[] {
  const files = readdirSync(moduleDir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
  return [...files, path.join(rootDir, "LICENSE")]
    .map((file) => ({
      path: `${prefix}/${file.startsWith(`${moduleDir}/`) ? path.relative(moduleDir, file) : path.basename(file)}`,
      data: readFileSync(file),
    }))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1));
}
