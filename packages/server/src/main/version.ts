import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

const rootDir = path.resolve(import.meta.dirname, "../../../..");

/** The version of everything in this checkout: the release, or the release with `-dev+<commit>` off a tag. */
export function readVersion(): string {
  const { version } = JSON.parse(readFileSync(path.join(rootDir, "package.json"), "utf8")) as { version: string };
  const commit = readCommit();
  return commit === undefined || isTagged(version, commit) ? version : `${version}-dev+${commit.slice(0, 9)}`;
}

/** The checked-out commit, read from git's files because starting git would cost more than the rest of `--version`. */
function readCommit(): string | undefined {
  const head = readGitFile("HEAD");
  if (head === undefined || !head.startsWith("ref: ")) return head;
  const ref = head.slice("ref: ".length);
  return readGitFile(ref) ?? packedRef(ref);
}

function isTagged(version: string, commit: string): boolean {
  return (readGitFile(`refs/tags/v${version}`) ?? packedRef(`refs/tags/v${version}`)) === commit;
}

function packedRef(ref: string): string | undefined {
  const line = readGitFile("packed-refs")
    ?.split("\n")
    .find((entry) => entry.endsWith(` ${ref}`));
  return line?.split(" ")[0];
}

function readGitFile(name: string): string | undefined {
  const file = path.join(rootDir, ".git", name);
  return existsSync(file) ? readFileSync(file, "utf8").trim() : undefined;
}
