import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { BackupError } from "@agent-sandbox/server/backup/backup-error";
import { type OptionalPart, optionalParts } from "@agent-sandbox/server/backup/manifest";
import { formatBytes } from "../bytes.ts";
import { CliError, usageError } from "../cli-error.ts";
import type { Context, Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { parseDurationMs } from "../duration.ts";
import { exitCodes } from "../exit-codes.ts";
import { unguarded } from "../terminal/harmless.ts";

interface PassphraseFlags {
  readonly passphraseFile?: string;
}

interface BackupFlags extends PassphraseFlags {
  readonly dataDir?: string;
  readonly to?: string;
  readonly include?: string;
  readonly all?: boolean;
  readonly pauseMax: string;
  readonly verify?: string;
  readonly output?: "json";
}

interface RestoreFlags extends PassphraseFlags {
  readonly dataDir?: string;
  readonly from?: string;
  readonly force?: boolean;
}

/** Writes a backup of the engine of this machine, or checks one. */
export const backupVerb: Verb<BackupFlags> = async (context, _args, flags) => {
  const passphrase = await readPassphrase(flags, context);
  if (flags.verify !== undefined) return verify(context, flags.verify, passphrase, flags);
  if (flags.to === undefined) throw usageError("name where the backup goes: --to FILE, --to DIR or --to -");
  if (flags.to === "-" && context.stdout.isTTY)
    throw usageError("a backup is not for a terminal; name a file with --to");
  const include = includeOf(flags);
  const startedMs = context.nowMs();
  const { backup } = await import("@agent-sandbox/server/main/backup");
  const report = await inWords(() =>
    backup({
      dataDir: dataDirOf(flags, context),
      to: flags.to ?? "",
      include,
      ...(passphrase !== undefined && { passphrase }),
      pauseMaxMs: parseDurationMs("--pause-max", flags.pauseMax),
      stdout: unguarded(context.stdout),
      nowMs: startedMs,
      signal: context.signal,
    }),
  );
  // Standard output may be the backup itself.
  const out = flags.to === "-" ? context.stderr : context.stdout;
  const durationMs = context.nowMs() - startedMs;
  if (flags.output === "json") out.write(`${JSON.stringify({ ...report, durationMs }, null, 2)}\n`);
  else
    out.write(
      `${report.file === undefined ? "written" : `${report.file} is written and was read back`}: ${formatBytes(report.sizeBytes)}, ${report.parts.length} parts in ${(durationMs / 1000).toFixed(1)} s; writers waited ${Math.ceil(report.pausedMsMax)} ms at most\nsha256 ${report.sha256}\n`,
    );
  if (passphrase === undefined)
    context.stderr.write(
      "warning: this backup is not encrypted, and has the engine's private keys and the content of every volume; guard it as you guard root's files, or use --passphrase-file\n",
    );
  return undefined;
};

async function verify(
  context: Context,
  file: string,
  passphrase: string | undefined,
  { output }: BackupFlags,
): Promise<undefined> {
  const { BackupFile } = await import("@agent-sandbox/server/main/read-backup");
  const checked = await inWords(async () => {
    await using opened = await BackupFile.open(file, passphrase);
    return await opened.read(async () => {});
  });
  const { manifest, parts, sizeBytes, sha256 } = checked;
  if (output === "json") context.stdout.write(`${JSON.stringify(checked, null, 2)}\n`);
  else
    context.stdout.write(
      `${file} is whole: ${formatBytes(sizeBytes)}, ${parts.length} parts, of node ${manifest.nodeName}, made ${manifest.createdAt} by version ${manifest.engineVersion}\nsha256 ${sha256}\n`,
    );
  return undefined;
}

/** Restores a backup into a data directory. */
export const restoreVerb: Verb<RestoreFlags> = async (context, _args, flags) => {
  if (flags.from === undefined) throw usageError("name the backup: --from FILE");
  const from = flags.from;
  const passphrase = await readPassphrase(flags, context);
  const dataDir = dataDirOf(flags, context);
  const { restore } = await import("@agent-sandbox/server/main/restore");
  const options = { from, dataDir, force: flags.force === true, nowMs: context.nowMs() };
  const { manifest, parts, movedTo, isNetworkTaken } = await inWords(() =>
    restore({ ...options, ...(passphrase !== undefined && { passphrase }) }),
  );
  const { stdout, stderr } = context;
  if (movedTo !== undefined) stdout.write(`what was in ${dataDir} is in ${movedTo}\n`);
  stdout.write(
    `${dataDir} has what node ${manifest.nodeName} had at ${manifest.createdAt}: ${parts.length} parts; start it with: agent-sandbox up --detach --data-dir ${dataDir}\n`,
  );
  const missing = optionalParts.filter((part) => !manifest.includes.includes(part));
  if (missing.length > 0) stderr.write(`note: the backup was made without ${missing.join(" and ")}\n`);
  if (isNetworkTaken)
    stderr.write(
      `warning: this machine uses the range of addresses in ${dataDir}/network.json already; sandboxes will not be reached until that use ends\n`,
    );
};

function includeOf({ include, all }: BackupFlags): OptionalPart[] {
  if (all === true) return [...optionalParts];
  if (include === undefined) return ["volumes"];
  const words = include.split(",").filter((word) => word !== "");
  const unknown = words.find((word) => !(optionalParts as readonly string[]).includes(word));
  if (unknown !== undefined) throw usageError(`--include: '${unknown}' is none of ${optionalParts.join(", ")}`);
  return optionalParts.filter((choice) => words.includes(choice));
}

async function readPassphrase({ passphraseFile }: PassphraseFlags, { stdin }: Context): Promise<string | undefined> {
  if (passphraseFile === undefined) return undefined;
  const whole =
    passphraseFile === "-"
      ? await text(stdin)
      : await readFile(passphraseFile, "utf8").catch((cause: Error) => {
          throw usageError(`cannot read the passphrase: ${cause.message}`);
        });
  const passphrase = whole.replace(/\r?\n$/, "");
  if (passphrase === "") throw usageError(`${passphraseFile} has no passphrase in it`);
  return passphrase;
}

const exitCodeOf = {
  "not-a-backup": exitCodes.unsound,
  damaged: exitCodes.unsound,
  passphrase: exitCodes.denied,
  denied: exitCodes.denied,
  unsupported: exitCodes.unsupported,
  exists: exitCodes.conflict,
  file: exitCodes.failed,
  engine: exitCodes.noEngine,
} as const;

/** Gives what goes wrong with a backup an exit code of the table. */
async function inWords<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof BackupError)) throw error;
    throw new CliError(error.message, { exitCode: exitCodeOf[error.code], cause: error });
  }
}
