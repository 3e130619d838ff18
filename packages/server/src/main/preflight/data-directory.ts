import { accessSync, constants, existsSync, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { planLimits } from "../../node/limits.ts";
import { canEnter, closedAncestor, closedSentence } from "../data-dir.ts";
import { EngineError } from "../engine-error.ts";
import { readEngineRecord } from "../engine-record.ts";
import type { Layout } from "../layout.ts";
import { parseLimitFlags } from "../limit-flags.ts";
import { mountOf } from "../mounts.ts";
import { assertUsable } from "../older-version.ts";
import { roleNames, tryRoleUser } from "../role-user.ts";
import { broken, type Look, ok, type StartQuestion } from "./look.ts";

const advice = "choose another with --data-dir";

/** The directory, or what is above it, must be root's alone, be written to, and hold programs. */
export function lookAtDataDirectory({ layout }: StartQuestion): Look {
  const { dataDir } = layout;
  const place = existingAbove(dataDir);
  if (!statSync(place).isDirectory()) return broken("usage", `${place} is not a directory`, advice);
  try {
    assertUsable(layout);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return { verdict: "broken", code: error.code, detail: error.message };
  }
  const closed = closedAbove(place, dataDir);
  if (closed !== undefined) return { verdict: "broken", code: "denied", detail: closed };
  const mount = mountOf(place);
  if (mount?.options.includes("ro") === true || !isWritable(place))
    return broken("denied", `the data directory ${dataDir} is on a read-only file system (${mount?.point})`, advice);
  if (mount?.options.includes("noexec") === true)
    return broken(
      "unsupported",
      `the data directory ${dataDir} is on a file system that is mounted noexec (${mount.point}), from which no sandbox can start`,
      `mount it again with: mount -o remount,exec ${mount.point}, or choose another with --data-dir`,
    );
  return ok(`${dataDir} is, or will be, root's alone`);
}

/** A sentence about a directory that a role's user, one that is there or one that is still to be made, could not enter. */
function closedAbove(place: string, dataDir: string): string | undefined {
  // What is missing is made open: of the way to it, the last directory that is there has to be entered, too.
  const way = place === dataDir ? [] : [place];
  for (const role of roleNames) {
    const isOpen = (dir: string): boolean => canEnter(dir, tryRoleUser(role));
    const closed = closedAncestor(place, isOpen) ?? way.find((dir) => !isOpen(dir));
    if (closed !== undefined) return closedSentence(closed, dataDir);
  }
  return undefined;
}

/** One engine per data directory. */
export async function lookAtOtherEngines({ layout }: StartQuestion): Promise<Look> {
  const { dataDir } = layout;
  const running = readEngineRecord(layout);
  if (running === undefined) return ok(`none on ${dataDir}`);
  const { supervisor, apiUrl } = running;
  return broken(
    "conflict",
    `an engine is running on ${dataDir} already (pid ${supervisor.pid}, API ${apiUrl})`,
    "stop it with agent-sandbox down",
  );
}

/** What an engine writes before its first sandbox: its database, keys and logs, and the layers of the image that brings nothing but the host's programs. */
const startBytes = 256 * 2 ** 20;

/** With less, an image or two fill what is left. */
const comfortableBytes = 5 * 2 ** 30;

/** Room for what is kept free, and for a start. */
export async function lookAtDisk({ layout, limits: flags }: StartQuestion): Promise<Look> {
  const { wishes, errors } = parseLimitFlags(flags);
  if (errors.length > 0) throw new EngineError(errors.join("; "), { code: "usage" });
  const place = existingAbove(layout.dataDir);
  const { bavail, blocks, bsize } = await statfs(place);
  const free = bavail * bsize;
  const machine = { memoryBytes: os.totalmem(), diskBytes: blocks * bsize, pidsMax: Number.MAX_SAFE_INTEGER };
  const { reservedDiskBytes } = planLimits(wishes, machine).limits;
  const needed = reservedDiskBytes + startBytes;
  const detail = `${mebibytes(free)} free at ${place}`;
  if (free < needed) {
    const tooLittle = `only ${detail}, and an engine there needs ${mebibytes(needed)}, of which it keeps ${mebibytes(reservedDiskBytes)} free`;
    // An engine that does not start lets nothing be deleted: on a full disk that would be for good.
    if (hasStarted(layout))
      return { verdict: "warning", detail: tooLittle, advice: "delete sandboxes or images that are not needed" };
    return broken(
      "failed",
      tooLittle,
      "free some, choose another --data-dir, or keep less free with --system-reserved-disk",
    );
  }
  if (free >= comfortableBytes) return ok(detail);
  return { verdict: "warning", detail, advice: "free some, or move the engine with --data-dir" };
}

/** Whether an engine, which has a store, or the node of a cluster, which has the helper's records alone, ran on a directory before. */
function hasStarted({ dbFile, hostDir }: Layout): boolean {
  return existsSync(dbFile) || existsSync(hostDir);
}

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / 2 ** 20)} MiB`;
}

/** The path itself, or the nearest above it that is there. */
function existingAbove(file: string): string {
  return existsSync(file) || path.dirname(file) === file ? file : existingAbove(path.dirname(file));
}

function isWritable(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
