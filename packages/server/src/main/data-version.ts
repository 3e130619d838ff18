import { readFileSync } from "node:fs";
import type { Layout } from "./layout.ts";
import { writeRootFile } from "./root-files.ts";

/** Which version last ran on a data directory. */
export interface DataVersion {
  readonly version: string;
  /** The format of the store that it writes. */
  readonly storeFormat: number;
  /** The version that ran before it, if another one did. */
  readonly before?: string;
}

/** What the last engine of a data directory left; undefined before the first one, and for one that wrote none. */
export function readDataVersion({ versionFile }: Pick<Layout, "versionFile">): DataVersion | undefined {
  try {
    return JSON.parse(readFileSync(versionFile, "utf8")) as DataVersion;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Notes that a version runs. Preconditions: the caller is root. */
export function writeDataVersion(
  layout: Pick<Layout, "versionFile">,
  { version, storeFormat }: Pick<DataVersion, "version" | "storeFormat">,
): void {
  const last = readDataVersion(layout);
  const before = last === undefined || last.version === version ? last?.before : last.version;
  writeRootFile(layout.versionFile, JSON.stringify({ version, storeFormat, ...(before !== undefined && { before }) }));
}
