import { globSync } from "node:fs";
import { type EngineRecord, liveRecordIn, recordFileIn } from "@agent-sandbox/kube/engine-record";
import { EngineError } from "./engine-error.ts";
import type { Layout } from "./layout.ts";
import { writeRootFile } from "./root-files.ts";

/** The record of the engine of this data directory, if it runs. */
export function readEngineRecord(layout: Layout): EngineRecord | undefined {
  try {
    return liveRecordIn(layout.recordFile);
  } catch (error) {
    throw new EngineError(
      `the record of the engine on ${layout.dataDir} cannot be read (${(error as Error).message}); if none runs there, remove ${layout.recordFile}`,
      { code: "conflict", cause: error },
    );
  }
}

/** The installations of all engines whose run directories are below a directory; undefined where the record of one cannot be read. */
export function installationsInUse(runDirs: string): readonly string[] | undefined {
  try {
    return globSync(recordFileIn(`${runDirs}/*`)).flatMap((file) => liveRecordIn(file)?.installation ?? []);
  } catch {
    // Cut off, or of a version that has others.
    return undefined;
  }
}

/** Publishes the record for root; readers see the old one or the new one, never half of it. */
export function writeEngineRecord(layout: Layout, record: EngineRecord): void {
  writeRootFile(layout.recordFile, `${JSON.stringify(record, null, 2)}\n`);
}
