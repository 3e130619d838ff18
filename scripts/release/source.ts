import { spawnSync } from "node:child_process";
import { rootDir } from "../checkout.ts";

/** What a release is made from. */
export interface Source {
  /** The commit, with `-dirty` behind it where files differ from it. */
  readonly commit: string;
  /** Seconds since 1970: the commit's date, or SOURCE_DATE_EPOCH. Every time in a release is this one. */
  readonly epoch: number;
}

/** Asks git, and the environment first. */
export function readSource(): Source {
  const commit = git("rev-parse", "HEAD");
  const isDirty = git("status", "--porcelain", "--untracked-files=no") !== "";
  const epoch = Number(process.env["SOURCE_DATE_EPOCH"] ?? git("log", "-1", "--format=%ct"));
  if (!Number.isSafeInteger(epoch) || epoch < 0) throw new Error("SOURCE_DATE_EPOCH is not a number of seconds");
  return { commit: isDirty ? `${commit}-dirty` : commit, epoch };
}

function git(...args: string[]): string {
  // The same tree may belong to another user, as in a container; what is read from it here is its name and its date.
  const child = spawnSync("git", ["-c", `safe.directory=${rootDir}`, ...args], { cwd: rootDir, encoding: "utf8" });
  if (child.status !== 0) throw new Error(`git ${args.join(" ")}: ${child.stderr}`);
  return child.stdout.trim();
}
