import path from "node:path";
import type { UpgradeReport } from "@agent-sandbox/server/main/upgrade/upgrade";
import type { UpgradeErrorCode } from "@agent-sandbox/server/main/upgrade/upgrade-error";
import { CliError, usageError } from "../cli-error.ts";
import type { Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { exitCodes } from "../exit-codes.ts";
import { Progress } from "../output/progress.ts";

/** Flags of `upgrade`. */
export interface UpgradeFlags {
  readonly dataDir?: string;
  readonly from?: string;
  readonly check?: boolean;
  readonly prefix?: string;
  readonly restoreData?: boolean;
}

const exitCodeOf: Readonly<Record<UpgradeErrorCode, number>> = {
  "file-missing": exitCodes.notFound,
  "not-a-release": exitCodes.failed,
  "wrong-machine": exitCodes.unsupported,
  "wrong-version": exitCodes.conflict,
  "data-too-new": exitCodes.conflict,
  "not-from-a-tarball": exitCodes.unsupported,
  busy: exitCodes.conflict,
  "rolled-back": exitCodes.failed,
  timeout: exitCodes.timeout,
};

/** Replaces the engine of this machine by another version. */
export const upgradeVerb: Verb<UpgradeFlags> = async (context, _args, flags) => {
  if (flags.from === undefined) throw usageError("upgrade needs a release", "Name its file with --from.");
  const { upgrade } = await import("@agent-sandbox/server/main/upgrade/upgrade");
  const { UpgradeError } = await import("@agent-sandbox/server/main/upgrade/upgrade-error");
  using progress = new Progress(context);
  const report = await upgrade({
    file: path.resolve(flags.from),
    dataDir: dataDirOf(flags, context),
    ...(flags.prefix !== undefined && { prefix: flags.prefix }),
    isCheck: flags.check === true,
    restoreData: flags.restoreData === true,
    onStep: (step) => progress.show(`${step} ...`),
  }).catch((error: unknown) => {
    if (!(error instanceof UpgradeError)) throw error;
    throw new CliError(error.message, { exitCode: exitCodeOf[error.code], cause: error });
  });
  progress.clear();
  context.stdout.write(`${sentence(report)}\n`);
};

function sentence({ outcome, from, to, command, switchMs = 0 }: UpgradeReport): string {
  switch (outcome) {
    case "nothing-to-do":
      return `nothing to do: ${to} is installed, and runs where an engine runs`;
    case "checked":
      return `${from} can be replaced by ${to}`;
    case "installed":
      return `${to} is installed, and no engine runs; start it with: ${command} up`;
    case "upgraded":
      return `${from} was replaced by ${to}; no engine answered for ${(switchMs / 1000).toFixed(1)} s, sandboxes ran on; the command is ${command}`;
  }
}
