import { checkoutFile, readRelease } from "../installation/installation.ts";

/** The version of everything in this installation: the release's, or a checkout's with `-dev+<commit>` off a tag. */
export function readVersion(): string {
  const release = readRelease();
  if (release !== undefined) return release.version;
  const { version } = JSON.parse(checkoutFile("package.json") ?? "{}") as { version: string };
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
  return checkoutFile(`.git/${name}`)?.trim();
}
