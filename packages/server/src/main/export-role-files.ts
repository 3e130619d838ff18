// Run by role-files.ts as a process of its own: gives root up for the user of a role and writes files of that role to standard output. Root
// itself opens nothing in a role's directory, and a link that was planted there leads this process to nothing that the role could not read.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { type FileHandle, open, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { copyDatabase } from "../store/database-copy.ts";
import { dropPrivileges, type RoleUser } from "./role-user.ts";

/** What the process gets: files and directories of a role, by their names below its directory. */
export interface RoleExport {
  readonly user: RoleUser;
  readonly dir: string;
  readonly database?: string;
  readonly files?: readonly string[];
  /** Every regular file in them, without those in directories below. */
  readonly directories?: readonly string[];
}

interface OpenFile {
  readonly name: string;
  readonly handle: FileHandle;
}

/** Ends the name of a copy that is on its way; the next export removes those that a killed one left. */
const copySuffix = ".backup-copy";

async function main(): Promise<void> {
  const wanted = JSON.parse(process.argv[2] ?? "") as RoleExport;
  dropPrivileges(wanted.user);
  const opened: OpenFile[] = [];
  if (wanted.database !== undefined) opened.push(await openCopy(wanted.dir, wanted.database));
  // All are opened before the first is written: what is deleted meanwhile can still be read.
  for (const name of [...(wanted.files ?? []), ...(await namesIn(wanted))]) {
    const file = await tryOpen(wanted.dir, name);
    if (file !== undefined) opened.push(file);
  }
  for (const file of opened) await writeFrame(file);
  await write(lengthOf(0));
}

async function openCopy(dir: string, name: string): Promise<OpenFile> {
  const file = path.join(dir, name);
  const folder = path.dirname(file);
  for (const left of (await readdir(folder)).filter((entry) => entry.includes(copySuffix)))
    await rm(path.join(folder, left), { force: true });
  const copy = `${file}.${randomUUID()}${copySuffix}`;
  try {
    await copyDatabase(file, copy);
    return { name, handle: await open(copy, "r") };
  } finally {
    for (const left of (await readdir(folder)).filter((entry) => entry.startsWith(path.basename(copy))))
      await rm(path.join(folder, left), { force: true });
  }
}

async function namesIn({ dir, directories = [] }: RoleExport): Promise<string[]> {
  const names: string[] = [];
  for (const directory of directories) {
    const entries = await readdir(path.join(dir, directory), { withFileTypes: true }).catch(ignoreMissing);
    for (const entry of entries ?? []) if (entry.isFile()) names.push(path.join(directory, entry.name));
  }
  return names;
}

async function tryOpen(dir: string, name: string): Promise<OpenFile | undefined> {
  const handle = await open(path.join(dir, name), "r").catch(ignoreMissing);
  return handle && { name, handle };
}

function ignoreMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
}

/** A frame: the length of a line of JSON, that line, and as many bytes as it says. */
async function writeFrame({ name, handle }: OpenFile): Promise<void> {
  const { size } = await handle.stat();
  const head = Buffer.from(JSON.stringify({ name, sizeBytes: size }));
  await write(Buffer.concat([lengthOf(head.length), head]));
  if (size > 0)
    for await (const chunk of handle.createReadStream({ start: 0, end: size - 1 })) await write(chunk as Buffer);
  else await handle.close();
}

function lengthOf(length: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(length);
  return bytes;
}

async function write(bytes: Uint8Array): Promise<void> {
  if (!process.stdout.write(bytes)) await once(process.stdout, "drain");
}

await main();
