import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import type { FileContent, SandboxPath } from "@agent-sandbox/sdk";
import { type Fields, text } from "./matching.ts";
import type { Step, Verb, World } from "./world.ts";

function pathOf(step: Step): SandboxPath {
  const encoded = step["pathBase64"];
  // Names that are not UTF-8 are given as bytes.
  if (typeof encoded === "string") return Buffer.from(encoded, "base64");
  return text(step, "path");
}

function contentOf(step: Step): FileContent {
  if (typeof step["base64"] === "string") return Buffer.from(step["base64"], "base64");
  if (typeof step["sizeBytes"] === "number") return new Uint8Array(step["sizeBytes"]);
  return text(step, "text");
}

async function write(world: World, step: Step): Promise<Fields> {
  const { mode, append } = step as { mode?: number; append?: boolean };
  await world.box(step).files.write(pathOf(step), contentOf(step), {
    ...(mode !== undefined && { mode }),
    ...(append !== undefined && { append }),
  });
  return {};
}

async function read(world: World, step: Step): Promise<Fields> {
  const bytes = Buffer.from(await world.box(step).files.read(pathOf(step)));
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { text: bytes.toString(), base64: bytes.toString("base64"), size: bytes.length, sha256 };
}

async function stat(world: World, step: Step): Promise<Fields> {
  const { type, mode, sizeBytes } = await world.box(step).files.stat(text(step, "path"));
  return { type, mode, size: sizeBytes };
}

async function list(world: World, step: Step): Promise<Fields> {
  const names: string[] = [];
  const options = { depth: Number(step["depth"] ?? 1) };
  for await (const { name } of world.box(step).files.list(text(step, "path"), options)) names.push(name);
  return { names: names.sort() };
}

/** Describes and removes what a listing names, by the path that it gives. */
async function removeListed(world: World, step: Step): Promise<Fields> {
  const { files } = world.box(step);
  for await (const { path: shown, rawPath = shown } of files.list(text(step, "path"))) {
    await files.stat(rawPath);
    await files.delete(rawPath);
  }
  return {};
}

async function glob(world: World, step: Step): Promise<Fields> {
  const found = await world.box(step).files.glob(text(step, "pattern"), { path: text(step, "path") });
  return { names: found.map(({ name }) => name).sort() };
}

async function watch(world: World, step: Step): Promise<Fields> {
  const { files } = world.box(step);
  const file = text(step, "path");
  const events = await files.watch(path.posix.dirname(file));
  await files.write(file, "watched");
  for await (const event of events) if (event.path === file) return { seen: true };
  return { seen: false };
}

async function roundTrip(world: World, step: Step): Promise<Fields> {
  const scratch = await mkdtemp(path.join(os.tmpdir(), "scenario-"));
  const [there, back] = [path.join(scratch, "there"), path.join(scratch, "back")];
  try {
    for (const [name, content] of Object.entries(step["files"] as Record<string, string>)) {
      await mkdir(path.dirname(path.join(there, name)), { recursive: true });
      await writeFile(path.join(there, name), content);
    }
    await world.box(step).files.upload(there, text(step, "path"));
    await world.box(step).files.download(text(step, "path"), back);
    return { files: await readTree(back) };
  } finally {
    await rm(scratch, { recursive: true });
  }
}

async function readTree(root: string): Promise<Fields> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  const texts = files.map(async (file) => [path.relative(root, file), await readFile(file, "utf8")] as const);
  return Object.fromEntries(await Promise.all(texts));
}

async function fetchPort(world: World, step: Step): Promise<Fields> {
  const { method, body } = step as { method?: string; body?: string };
  const options = { ...(method !== undefined && { method }), ...(body !== undefined && { body }) };
  const response = await world.box(step).fetch(Number(step["port"]), text(step, "path"), options);
  return { status: response.status, text: await response.text() };
}

async function remove(world: World, step: Step): Promise<Fields> {
  const options = { recursive: step["recursive"] === true, missingOk: step["missingOk"] === true };
  await world.box(step).files.delete(text(step, "path"), options);
  return {};
}

async function makeDir(world: World, step: Step): Promise<Fields> {
  const options = { mode: 0o755, parents: step["parents"] !== false };
  await world.box(step).files.mkdir(text(step, "path"), options);
  return {};
}

async function checksum(world: World, step: Step): Promise<Fields> {
  return { digest: await world.box(step).files.checksum(pathOf(step)) };
}

/** Verbs about files and ports. */
export const fileVerbs: Readonly<Record<string, Verb>> = {
  "write-file": write,
  "read-file": read,
  stat,
  exists: async (world, step) => ({ exists: await world.box(step).files.exists(text(step, "path")) }),
  "list-files": list,
  "remove-listed": removeListed,
  glob,
  checksum,
  mkdir: makeDir,
  move: async (world, step) => {
    const options = { overwrite: step["overwrite"] === true };
    await world.box(step).files.move(text(step, "path"), text(step, "to"), options);
    return {};
  },
  copy: async (world, step) => {
    await world.box(step).files.copy(text(step, "path"), text(step, "to"));
    return {};
  },
  remove,
  "watch-file": watch,
  "round-trip": roundTrip,
  fetch: fetchPort,
};
