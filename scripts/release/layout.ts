import { readFileSync } from "node:fs";
import path from "node:path";
import { releaseLayout } from "../../packages/server/src/installation/installation.ts";
import { rootDir } from "../checkout.ts";

/** The architectures that a release is built for, in Node's words. */
export const architectures = ["x64", "arm64"] as const;

/** One of them. */
export type Architecture = (typeof architectures)[number];

/** What Debian calls them. */
export const debianArchitectures: Readonly<Record<Architecture, string>> = { x64: "amd64", arm64: "arm64" };

/** Where everything lies in an unpacked release, relative to its root. What the programs themselves look for is in `releaseLayout`. */
export const layout = {
  ...releaseLayout,
  launcher: "bin/agent-sandbox",
  node: "lib/node",
  manual: "share/man/man1/agent-sandbox.1",
  completions: {
    bash: "share/bash-completion/completions/agent-sandbox",
    zsh: "share/zsh/site-functions/_agent-sandbox",
    fish: "share/fish/vendor_completions.d/agent-sandbox.fish",
  },
  deploy: "share/deploy",
  doc: "share/doc",
} as const;

/** The native programs by the name they have in `libexec`. */
export const nativeProgramNames = ["runsc", "sandboxd", "sandbox-host", "sandbox-probe"] as const;

/** `agent-sandbox-0.1.0-linux-x64`: the folder that a tarball unpacks to, and its own name without the ending. */
export function releaseName(version: string, arch: Architecture): string {
  return `agent-sandbox-${version}-linux-${arch}`;
}

/** A file of a release: its bytes, or where they are, and its mode. */
export interface ReleaseFile {
  readonly mode: 0o644 | 0o755;
  readonly content: Buffer | { readonly file: string };
}

/** The files of a release by their path relative to its root. */
export type ReleaseTree = ReadonlyMap<string, ReleaseFile>;

/** The paths of a tree in the order in which every archive has them. */
export function sortedPaths(tree: ReleaseTree): string[] {
  return [...tree.keys()].sort((a, b) => (a < b ? -1 : 1));
}

/** A file's bytes. */
export function bytesOf({ content }: ReleaseFile): Buffer {
  return Buffer.isBuffer(content) ? content : readFileSync(content.file);
}

/** The version of everything that is released. */
export function releaseVersion(): string {
  const text = readFileSync(path.join(rootDir, "package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
