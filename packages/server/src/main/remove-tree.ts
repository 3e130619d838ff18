import { execFile } from "node:child_process";
import { realpathSync } from "node:fs";
import { promisify } from "node:util";
import { EngineError } from "./engine-error.ts";

const execute = promisify(execFile);

/**
 * Deletes a directory and everything in it, and a link that led to it. Parts of it belong to others, who may swap a directory for a link while
 * this goes on: coreutils' rm walks by descriptors, however deep it goes, and stays on the file system it began on.
 */
export async function removeTree(dir: string): Promise<void> {
  try {
    await execute("rm", ["-rf", "--one-file-system", "--", ...new Set([targetOf(dir), dir])]);
  } catch (cause) {
    throw new EngineError(`${dir} could not be deleted: ${(cause as Error).message}`, { code: "failed", cause });
  }
}

function targetOf(dir: string): string {
  try {
    return realpathSync(dir);
  } catch {
    // It is gone, or leads nowhere.
    return dir;
  }
}
