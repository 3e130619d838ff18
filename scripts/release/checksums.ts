import { readdirSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { sha256Of } from "./natives.ts";

/** The name of the list of digests, in the form that `sha256sum --check` reads. */
export const checksumsName = "SHA256SUMS";

/** A file of a release and the digest of its bytes. */
export interface Digest {
  readonly name: string;
  readonly sha256: string;
}

/** The digests of the files below a folder, by their path in it; the list of digests itself is left out. */
export function digestsIn(dir: string): Digest[] {
  return readdirSync(dir, { recursive: true, encoding: "utf8" })
    .filter((name) => name !== checksumsName && statSync(path.join(dir, name)).isFile())
    .sort()
    .map((name) => ({ name, sha256: sha256Of(path.join(dir, name)) }));
}

/** Writes the list of digests of everything in a folder. */
export function writeChecksums(dir: string): void {
  const lines = digestsIn(dir).map(({ name, sha256 }) => `${sha256}  ${name}\n`);
  writeFileSync(path.join(dir, checksumsName), lines.join(""));
}
