// What a step of the set-up is made of: running programs with a readable failure, and keys over file contents.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { rootDir } from "./places.mjs";

/** A failure the user can act on; anything else is a bug and keeps its stack. */
export class SetupError extends Error {
  constructor(message, exitCode = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}

// Set-up prints the last lines only: a failed `npm ci` or `go build` says what is wrong there.
const failureLinesMax = 15;

/** Runs a program to its end. `needsNetwork` names, in the error, why a machine without network fails here. */
export function run(program, args, { cwd, env, needsNetwork } = {}) {
  const child = spawnSync(program, args, {
    cwd,
    env: { ...process.env, ...env },
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (child.status === 0) return child.stdout;
  const said = child.error ? child.error.message : `${child.stdout}\n${child.stderr}`;
  const tail = said.trim().split("\n").slice(-failureLinesMax).join("\n");
  const hint = needsNetwork ? `\nthis step needs the network: ${needsNetwork}` : "";
  throw new SetupError(`${[program, ...args].join(" ")} failed:\n${tail}${hint}`);
}

/** Full path of a program on PATH or in the administrator's directories, or undefined. */
export function which(program) {
  const dirs = [...(process.env.PATH ?? "").split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin"];
  return dirs.map((dir) => path.join(dir, program)).find(isProgram);
}

/** True for a file that can be executed. */
export function isProgram(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A short key over the contents of files and the texts given besides. */
export function contentKey(files, ...texts) {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(text).update("\0");
  // Names are relative, so that all checkouts share what was made from the same contents.
  for (const file of files)
    hash.update(path.relative(rootDir, file)).update("\0").update(readFileSync(file)).update("\0");
  return hash.digest("hex").slice(0, 16);
}

/** All files below a directory whose name passes, sorted, so that a key over them is stable. */
export function filesBelow(dir, accept) {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && accept(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
}

/** Makes a directory under a temporary name and renames it when `fill` has finished. */
export function makeDirectory(target, fill) {
  const partial = `${target}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  fill(partial);
  rmSync(target, { recursive: true, force: true });
  renameSync(partial, target);
}
