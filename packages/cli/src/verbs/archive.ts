import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { formatBytes } from "../bytes.ts";
import { CliError, usageError } from "../cli-error.ts";
import { type Context, required, type Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { formatTable } from "../output/table.ts";
import { unguarded } from "../terminal/harmless.ts";

interface ArchiveVerbFlags {
  readonly dataDir?: string;
  readonly archive?: string;
  readonly archiveEndpoint?: string;
  readonly archiveCredentials?: string;
  readonly output?: "json";
}

/** Lists what the index of the archive has. */
export const archiveLsVerb: Verb<ArchiveVerbFlags> = async (context, _args, flags) => {
  const { listArchive } = await import("@agent-sandbox/server/main/archive-keys");
  const { signal } = context;
  const found = await listArchive({ dataDir: dataDirOf(flags, context), flags, signal });
  if (flags.output === "json") {
    context.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
    return;
  }
  const rows = found.map(({ id, entry, error = "" }) =>
    entry === undefined
      ? ["-", "-", id, "-", "-", error]
      : [
          entry.namespace,
          entry.name,
          id,
          formatBytes(entry.contentBytes),
          formatBytes(entry.storedBytes),
          entry.archivedAt,
        ],
  );
  const { isTTY, columns } = context.stdout;
  const heads = ["NAMESPACE", "NAME", "ID", "SIZE", "STORED", "ARCHIVED"];
  context.stdout.write(formatTable(heads, rows, isTTY === true ? { width: columns } : {}));
};

/** Exports, imports, rotates or retires the keys of the archive. */
export const archiveKeyVerb: Verb<ArchiveVerbFlags> = async (context, args, flags) => {
  const dataDir = dataDirOf(flags, context);
  switch (required(args, 0, "action")) {
    case "export":
      return exportKeys(context, dataDir, args[1] ?? "-");
    case "import":
      return importKeys(context, dataDir, required(args, 1, "file"));
    case "rotate":
      return rotate(context, dataDir, flags);
    case "retire":
      return retire(context, dataDir, flags);
    default:
      throw usageError(`'${args[0]}' is none of export, import, rotate and retire`);
  }
};

async function exportKeys(context: Context, dataDir: string, file: string): Promise<void> {
  if (file === "-" && context.stdout.isTTY) throw usageError("a key is not for a terminal; name a file");
  const { exportArchiveKeys } = await import("@agent-sandbox/server/main/archive-keys");
  const keys = await exportArchiveKeys(dataDir);
  if (file === "-") {
    unguarded(context.stdout).write(keys);
    return;
  }
  const { writeSecretOut } = await import("@agent-sandbox/server/main/secret-out");
  writeSecretOut(file, keys);
  context.stdout.write(`${file}\n`);
}

async function importKeys(context: Context, dataDir: string, file: string): Promise<void> {
  const { importArchiveKeys } = await import("@agent-sandbox/server/main/archive-keys");
  const keys = await (file === "-" ? text(context.stdin) : readFile(file, "utf8")).catch((error: Error) => {
    throw new CliError(`cannot read the keys: ${error.message}`);
  });
  const { current, keys: ids } = await importArchiveKeys(dataDir, keys);
  context.stdout.write(`${ids.length} keys, ${current} is current\n`);
}

async function retire(context: Context, dataDir: string, flags: ArchiveVerbFlags): Promise<void> {
  const { retireArchiveKeys } = await import("@agent-sandbox/server/main/archive-keys");
  const { current, keys } = await retireArchiveKeys({ dataDir, flags, signal: context.signal });
  context.stdout.write(`${keys.length} keys are left, ${current} is current\n`);
}

async function rotate(context: Context, dataDir: string, flags: ArchiveVerbFlags): Promise<number> {
  const { rotateArchiveKey } = await import("@agent-sandbox/server/main/archive-keys");
  const { current, keys, rewrapped, unread } = await rotateArchiveKey({ dataDir, flags, signal: context.signal });
  context.stdout.write(`${current} is current, ${keys.length} keys in all; ${rewrapped} archives use it\n`);
  for (const { id, error } of unread) context.stderr.write(`archive ${id} was left as it is: ${error}\n`);
  return unread.length === 0 ? 0 : 1;
}
