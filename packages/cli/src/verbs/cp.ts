import { stat } from "node:fs/promises";
import path from "node:path";
import type { Sandbox } from "@agent-sandbox/sdk";
import { isSandboxError } from "@agent-sandbox/sdk/errors/sandbox-error";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, required, type Verb } from "../context.ts";
import { findSandbox } from "../objects/find-sandbox.ts";

/** One side of a copy. */
export interface CopySide {
  /** Absent: this machine. */
  readonly sandbox?: string;
  readonly path: string;
}

/** Reads `SANDBOX:PATH` or a local path; a path that begins with `.` or `/` is always local. */
export function parseSide(text: string): CopySide {
  const colon = text.indexOf(":");
  if (colon <= 0 || /^[./]/.test(text)) return { path: text };
  return { sandbox: text.slice(0, colon), path: text.slice(colon + 1) || "." };
}

/** Copies files or directories in or out. */
export const cpVerb: Verb = async (context, args, flags) => {
  const from = parseSide(required(args, 0, "from"));
  const to = parseSide(required(args, 1, "to"));
  const name = from.sandbox ?? to.sandbox;
  if (name === undefined || (from.sandbox !== undefined && to.sandbox !== undefined)) {
    throw usageError("one side must be SANDBOX:PATH and the other a local path");
  }
  const sandbox = await findSandbox(name, flags as EngineFlags, context);
  if (from.path === streamPath && from.sandbox === undefined) await copyFromInput(context, sandbox, to.path);
  else if (to.path === streamPath && to.sandbox === undefined) await copyToOutput(context, sandbox, from.path);
  else if (from.sandbox === undefined) await copyIn(sandbox, from.path, to.path, context.signal);
  else await copyOut(sandbox, from.path, to.path, context.signal);
};

/** Standard input or output, as a local path; a file of that name is `./-`. */
const streamPath = "-";

async function copyFromInput({ stdin, signal }: Context, sandbox: Sandbox, remote: string): Promise<void> {
  if (remote.endsWith("/") || (await isRemoteDirectory(sandbox, remote, signal)))
    throw usageError(`${remote} is a directory; name the file that standard input goes to`);
  await sandbox.files.write(remote, stdin as AsyncIterable<Uint8Array>, { signal });
}

async function copyToOutput({ stdout, signal }: Context, sandbox: Sandbox, remote: string): Promise<void> {
  if (await isRemoteDirectory(sandbox, remote, signal))
    throw usageError(`${remote} is a directory; only a file goes to standard output`);
  const { pipeline } = await import("node:stream/promises");
  // Every byte as it is where standard output is no terminal; the stream outlives the copy.
  await pipeline(sandbox.files.readStream(remote, { signal }), stdout, { end: false });
}

/** As `cp` does: into an existing directory under its own name, else to the very path. */
async function copyIn(sandbox: Sandbox, local: string, remote: string, signal: AbortSignal): Promise<void> {
  const source = await stat(local).catch((cause: unknown) => {
    throw usageError(`cannot read ${local}: ${(cause as Error).message}`);
  });
  const isInto = remote.endsWith("/") || (await isRemoteDirectory(sandbox, remote, signal));
  const target = isInto ? path.posix.join(remote, path.basename(path.resolve(local))) : remote;
  if (source.isDirectory()) {
    await sandbox.files.upload(local, target, { signal });
    return;
  }
  const { createReadStream } = await import("node:fs");
  const mode = source.mode & 0o777;
  await sandbox.files.write(target, createReadStream(local) as AsyncIterable<Uint8Array>, { mode, signal });
}

async function copyOut(sandbox: Sandbox, remote: string, local: string, signal: AbortSignal): Promise<void> {
  const source = await sandbox.files.stat(remote, { signal });
  const isInto = local.endsWith("/") || (await isLocalDirectory(local));
  const target = isInto ? path.join(local, path.posix.basename(source.path)) : local;
  if (source.type === "directory") {
    await sandbox.files.download(remote, target, { signal });
    return;
  }
  const [{ createWriteStream }, { pipeline }] = await Promise.all([import("node:fs"), import("node:stream/promises")]);
  await pipeline(
    sandbox.files.readStream(remote, { signal }),
    createWriteStream(target, { mode: source.mode & 0o777 }),
  );
}

async function isRemoteDirectory(sandbox: Sandbox, remote: string, signal: AbortSignal): Promise<boolean> {
  try {
    return (await sandbox.files.stat(remote, { signal })).type === "directory";
  } catch (error) {
    if (isSandboxError(error, "not-found")) return false;
    throw error;
  }
}

async function isLocalDirectory(local: string): Promise<boolean> {
  return stat(local).then(
    (info) => info.isDirectory(),
    () => false,
  );
}
