import { createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { type Pack, pack } from "tar-stream";
import { bytesOf, type ReleaseTree, sortedPaths } from "./layout.ts";

/** How the files of a tree are put into an archive. */
export interface ArchiveOptions {
  /** Goes before every path: `agent-sandbox-0.1.0-linux-x64/`, or `./` in a Debian package. */
  readonly prefix: string;
  /** Seconds since 1970, for every entry. */
  readonly epoch: number;
}

/** Writes a tree as a compressed tar archive that is the same for the same tree: sorted, of one time, of user and group 0. */
export async function writeTarball(file: string, tree: ReleaseTree, options: ArchiveOptions): Promise<void> {
  await pipeline(archive(tree, options), createGzip(), createWriteStream(file));
}

/** The same in memory, for the small archives inside a Debian package. */
export async function tarballBytes(tree: ReleaseTree, options: ArchiveOptions): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of archive(tree, options).pipe(createGzip())) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function archive(tree: ReleaseTree, options: ArchiveOptions): Pack {
  const entries = pack();
  fill(entries, tree, options).then(
    () => entries.finalize(),
    (error: unknown) => entries.destroy(error as Error),
  );
  return entries;
}

async function fill(entries: Pack, tree: ReleaseTree, { prefix, epoch }: ArchiveOptions): Promise<void> {
  const common = { uid: 0, gid: 0, uname: "root", gname: "root", mtime: new Date(epoch * 1000) };
  const made = new Set<string>();
  for (const name of sortedPaths(tree)) {
    const file = tree.get(name);
    if (file === undefined) continue;
    for (const dir of foldersOf(`${prefix}${name}`)) {
      if (made.has(dir)) continue;
      made.add(dir);
      await add(entries, { ...common, name: dir, type: "directory", mode: 0o755 });
    }
    await add(entries, { ...common, name: `${prefix}${name}`, type: "file", mode: file.mode }, bytesOf(file));
  }
}

/** The folders on the way to a file, outermost first. */
function foldersOf(name: string): string[] {
  const parts = name.split("/").slice(0, -1);
  return parts.map((_, index) => `${parts.slice(0, index + 1).join("/")}/`);
}

/** One entry at a time: the archive holds no more than one file in memory. */
function add(entries: Pack, header: Parameters<Pack["entry"]>[0], bytes: Buffer = Buffer.alloc(0)): Promise<void> {
  return new Promise((resolve, reject) => {
    entries.entry(header, bytes, (error) => (error ? reject(error) : resolve()));
  });
}
