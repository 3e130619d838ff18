import type { EnsureEmptyDirRequest } from "../host/volume.ts";

/** Writable space of a pause container: it writes nothing. */
export const pauseWritableBytes = 16 * 2 ** 20;

/** The daemon's logs of all containers and runs, each with its rotated files; the sandbox can write there too, and no more than this. */
const stateBytes = 128 * 2 ** 20;

/** How the emptyDir is made that the daemon writes logs and last words to. */
export function stateDir(id: string): EnsureEmptyDirRequest {
  return { id, sizeBytes: stateBytes, nodeReads: true };
}
