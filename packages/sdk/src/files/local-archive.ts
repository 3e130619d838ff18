import { createReadStream, createWriteStream } from "node:fs";
import { chmod, lstat, mkdir, readdir, readlink, rm, symlink } from "node:fs/promises";
import { basename, dirname, join, resolve, sep } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { extract, type Header, pack } from "tar-stream";
import { SandboxError } from "../errors/sandbox-error.ts";

/** A tar archive of a local directory's contents, or of one file under its own name. Sockets and devices are left out. */
export function packLocal(localPath: string): AsyncIterable<Uint8Array> {
  const archive = pack();
  const add = async (): Promise<void> => {
    const root = await lstat(localPath);
    if (root.isDirectory()) await addDirectory(archive, localPath, "");
    else await addEntry(archive, localPath, basename(localPath));
    archive.finalize();
  };
  add().catch((error: unknown) => archive.destroy(error as Error));
  return archive as AsyncIterable<Uint8Array>;
}

type Pack = ReturnType<typeof pack>;

async function addDirectory(archive: Pack, directory: string, prefix: string): Promise<void> {
  for (const name of (await readdir(directory)).sort()) await addEntry(archive, join(directory, name), prefix + name);
}

async function addEntry(archive: Pack, path: string, name: string): Promise<void> {
  const info = await lstat(path);
  const header = { name, mode: info.mode & 0o7777, mtime: info.mtime };
  if (info.isDirectory()) {
    archive.entry({ ...header, type: "directory" });
    await addDirectory(archive, path, `${name}/`);
  } else if (info.isSymbolicLink()) {
    archive.entry({ ...header, type: "symlink", linkname: await readlink(path) });
  } else if (info.isFile()) {
    const entry = archive.entry({ ...header, size: info.size });
    if (info.size === 0) entry.end(undefined);
    // The size is promised by the header; what a growing file gains meanwhile is left out.
    else await pipeline(createReadStream(path, { end: info.size - 1 }), entry);
  }
}

/** Unpacks an archive that comes from a sandbox, and is therefore not trusted: nothing is written outside `localPath`. */
export async function unpackLocal(archive: AsyncIterable<Uint8Array>, localPath: string): Promise<void> {
  const root = resolve(localPath);
  await mkdir(root, { recursive: true });
  const entries = extract();
  const fed = pipeline(Readable.from(archive), entries);
  const links = new Set<string>();
  const read = async (): Promise<void> => {
    for await (const entry of entries) {
      await unpackEntry({ root, header: entry.header, body: entry as AsyncIterable<Uint8Array>, links });
      entry.resume();
    }
  };
  await Promise.all([fed, read()]);
}

interface Unpacking {
  readonly root: string;
  readonly header: Header;
  readonly body: AsyncIterable<Uint8Array>;
  /** Links that this archive made; nothing is written through one. */
  readonly links: Set<string>;
}

async function unpackEntry({ root, header, body, links }: Unpacking): Promise<void> {
  const target = resolve(root, header.name);
  if (target !== root && !target.startsWith(root + sep)) throw escaping(header.name);
  for (let parent = dirname(target); parent.length > root.length; parent = dirname(parent)) {
    if (links.has(parent) || (await isLink(parent))) throw escaping(header.name);
  }
  const mode = (header.mode ?? 0o644) & 0o777;
  if (header.type === "directory") {
    await mkdir(target, { recursive: true });
    await chmod(target, mode | 0o700);
    return;
  }
  if (header.type !== "file" && header.type !== "contiguous-file" && header.type !== "symlink") return;
  await mkdir(dirname(target), { recursive: true });
  // What is there may be a link; it is replaced, not followed.
  await rm(target, { force: true });
  if (header.type === "symlink") {
    await symlink(header.linkname ?? "", target);
    links.add(target);
    return;
  }
  await pipeline(body, createWriteStream(target, { flags: "wx", mode }));
}

async function isLink(path: string): Promise<boolean> {
  try {
    return (await lstat(path)).isSymbolicLink();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}

function escaping(name: string): SandboxError {
  return new SandboxError("protocol-error", `the archive has an entry outside its directory: ${JSON.stringify(name)}`);
}
