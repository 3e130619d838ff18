import { randomUUID } from "node:crypto";
import { closeSync, constants, fstatSync, lstatSync, openSync, renameSync, rmSync, type Stats } from "node:fs";
import path from "node:path";
import { EngineError } from "./engine-error.ts";
import { modeOf, stickyBit, writeFresh } from "./root-files.ts";

/**
 * Writes a secret to where a user wants it: into a file that was never anybody else's, which then takes the place of what was there. A process that
 * holds the old one open reads no word of it.
 */
export function writeSecretOut(file: string, text: string): void {
  withPlace(file, (place) => {
    const fresh = `${place}.${randomUUID()}`;
    try {
      writeFresh(fresh, text);
      renameSync(fresh, place);
    } catch (error) {
      rmSync(fresh, { force: true });
      throw error;
    }
  });
}

/** Throws where no secret should be written; says what to do. */
export function assertSecretTarget(file: string): void {
  withPlace(file, () => undefined);
}

/** Calls with a path to the file through its directory's descriptor, so that what was looked at is what is written to. */
function withPlace(file: string, act: (place: string) => void): void {
  const target = path.resolve(file);
  const descriptor = openDirectory(path.dirname(target));
  try {
    assertPrivate(path.dirname(target), fstatSync(descriptor));
    const place = `/proc/self/fd/${descriptor}/${path.basename(target)}`;
    const found = lstatSync(place, { throwIfNoEntry: false });
    if (found !== undefined) assertReplaceable(target, found);
    act(place);
  } finally {
    closeSync(descriptor);
  }
}

function openDirectory(dir: string): number {
  try {
    return openSync(dir, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (cause) {
    throw new EngineError(`cannot write a kubeconfig into ${dir}: ${(cause as Error).message}`, {
      code: "failed",
      cause,
    });
  }
}

function assertPrivate(dir: string, found: Stats): void {
  if ((found.mode & 0o002) !== 0 && (found.mode & stickyBit) === 0)
    throw new EngineError(
      `no kubeconfig is written into ${dir} (mode ${modeOf(found)}), where everybody may replace it; choose another directory`,
      { code: "denied" },
    );
}

function assertReplaceable(file: string, found: Stats): void {
  const what = whatIsWrong(found);
  if (what !== undefined)
    throw new EngineError(`no kubeconfig is written over ${file}, which ${what}; remove it or choose another file`, {
      code: "conflict",
    });
}

function whatIsWrong(found: Stats): string | undefined {
  if (found.isSymbolicLink()) return "is a link";
  if (!found.isFile()) return "is not a regular file";
  if (found.uid !== process.geteuid?.()) return `belongs to user ${found.uid}`;
  return undefined;
}
