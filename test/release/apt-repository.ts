import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { must } from "./empty-root.ts";

/** Makes a folder that apt takes as a repository out of package files; returns the line for sources.list, seen from `root`. */
export function writeAptRepository(root: string, debs: readonly string[]): string {
  const dir = path.join(root, "srv/apt");
  mkdirSync(dir, { recursive: true });
  for (const deb of debs) copyFileSync(deb, path.join(dir, path.basename(deb).replaceAll("%3a", "_")));
  const stanzas = readdirSync(dir).map((name) => {
    const file = path.join(dir, name);
    const bytes = readFileSync(file);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const control = must("dpkg-deb", ["--field", file]).trimEnd();
    return `${control}\nFilename: ./${name}\nSize: ${bytes.length}\nSHA256: ${sha256}\n`;
  });
  const packages = stanzas.join("\n");
  writeFileSync(path.join(dir, "Packages"), packages);
  const digest = createHash("sha256").update(packages).digest("hex");
  writeFileSync(path.join(dir, "Release"), `SHA256:\n ${digest} ${Buffer.byteLength(packages)} Packages\n`);
  return "deb [trusted=yes] file:/srv/apt ./\n";
}
