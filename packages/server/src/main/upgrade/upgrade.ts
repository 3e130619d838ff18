import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type EngineRecord, isAlive, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { installationDir, type ReleaseRecord } from "../../installation/installation.ts";
import { type DataVersion, readDataVersion } from "../data-version.ts";
import { EngineError } from "../engine-error.ts";
import { EngineLock } from "../engine-lock.ts";
import { installationsInUse, readEngineRecord } from "../engine-record.ts";
import { type Layout, layoutOf } from "../layout.ts";
import { assertUsable } from "../older-version.ts";
import { findStoreCopy } from "../store-restore.ts";
import {
  clearSwitch,
  readSwitchFailure,
  readSwitchOrder,
  type SwitchOrder,
  switchEndLimitMs,
  switchSignal,
  writeSwitchOrder,
} from "../switch-order.ts";
import { readVersion } from "../version.ts";
import { type InstallPlace, installPlaceOf, pointLink } from "./install-place.ts";
import { parseRecord, readReleaseFile } from "./release-file.ts";
import { compareVersions, isOneBack } from "./release-version.ts";
import { UpgradeError } from "./upgrade-error.ts";

const execute = promisify(execFile);

/** Options of `upgrade`. */
export interface UpgradeOptions {
  readonly file: string;
  readonly dataDir: string;
  /** Where releases are installed; default: where the one that runs is. */
  readonly prefix?: string;
  /** Look at everything and change nothing. */
  readonly isCheck: boolean;
  /** Go back to the store as the older version left it, where it cannot read the one that is there. */
  readonly restoreData: boolean;
  readonly onStep: (step: string) => void;
}

/** What `upgrade` did. */
export interface UpgradeReport {
  readonly outcome: "nothing-to-do" | "checked" | "installed" | "upgraded";
  /** The version before; the same as `to` where nothing was to do. */
  readonly from: string;
  readonly to: string;
  /** The command from now on. */
  readonly command: string;
  /** From the moment that the old engine was asked to go until the other one answered. */
  readonly switchMs?: number;
}

/**
 * Installs a release beside the one that runs, and has the running engine become it; sandboxes run on. Killed at any moment it leaves an engine
 * that works, and called again it completes: the file is looked at before anything changes, a version's directory appears in one step, so
 * does the link, and the switch itself is the supervisor's work.
 */
export async function upgrade(options: UpgradeOptions): Promise<UpgradeReport> {
  if (process.getuid?.() !== 0)
    throw new EngineError("an upgrade needs root; run it again as root", { code: "denied" });
  const layout = layoutOf(options.dataDir);
  assertUsable(layout);
  options.onStep("checking the file");
  const release = await readReleaseFile(options.file);
  const situation = await look(options, layout, release);
  const { from, place } = situation;
  const command = path.join(place.link, "bin/agent-sandbox");
  const restore = await checkData(situation, options.restoreData);
  if (restore !== undefined && situation.engine === undefined) throw needsEngine(situation);
  const done = { from, to: release.version, command };
  if (isDone(situation)) return { outcome: "nothing-to-do", ...done, from: release.version };
  if (options.isCheck) return { outcome: "checked", ...done };
  place.ensure();
  using lock = EngineLock.takeIn(place.prefix, "upgrade.lock");
  if (lock === undefined)
    throw new UpgradeError("busy", `another upgrade is under way in ${place.prefix}; try again when it is done`);
  await install(situation, options);
  const before = place.wayBack(release.version, situation.engine?.installation);
  pointLink(place.link, place.dirOf(release.version));
  if (situation.engine !== undefined) options.onStep(`replacing ${situation.engine.version}`);
  const startMs = performance.now();
  const engine = await ask(layout, {
    version: release.version,
    program: path.join(place.dirOf(release.version), "bin/agent-sandbox"),
    link: { path: place.link, ...(before !== undefined && { before }) },
    ...(restore !== undefined && { restore: { copy: restore, of: release.version } }),
  });
  if (engine === undefined) {
    if (restore === undefined) return { outcome: "installed", ...done };
    pointLink(place.link, before);
    throw needsEngine(situation);
  }
  await arrival({ ...situation, engine });
  const switchMs = Math.round(performance.now() - startMs);
  const inUse = installationsInUse(path.dirname(layout.runDir));
  if (inUse !== undefined)
    place.keepOnly([
      place.dirOf(release.version),
      engine.installation,
      ...inUse,
      ...(before === undefined ? [] : [before]),
    ]);
  return { outcome: "upgraded", ...done, switchMs };
}

/** Has the running engine carry out an order. Resolves with its record, or with undefined where none runs any more. */
async function ask(layout: Layout, order: SwitchOrder): Promise<EngineRecord | undefined> {
  if (readEngineRecord(layout) === undefined) return undefined;
  await clearSwitch(layout);
  writeSwitchOrder(layout, order);
  // Unpacking took seconds: the engine may have ended, and its pid be another process's, which the signal would end.
  const engine = readEngineRecord(layout);
  if (engine === undefined) await clearSwitch(layout);
  else process.kill(engine.supervisor.pid, switchSignal);
  return engine;
}

interface Situation {
  readonly layout: Layout;
  readonly release: ReleaseRecord;
  readonly engine: EngineRecord | undefined;
  readonly data: DataVersion | undefined;
  /** The version that is replaced. */
  readonly from: string;
  readonly place: InstallPlace;
}

async function look({ prefix }: UpgradeOptions, layout: Layout, release: ReleaseRecord): Promise<Situation> {
  const engine = readEngineRecord(layout);
  const data = readDataVersion(layout);
  const place = installPlaceOf(engine?.installation ?? installationDir(), prefix);
  const from = engine?.version ?? data?.version ?? readVersion();
  if (engine !== undefined && engine.installation === undefined)
    throw new UpgradeError(
      "wrong-version",
      `the engine that runs, ${engine.version}, is too old to be replaced while it runs; stop it with agent-sandbox down, and start ${release.version} with up`,
    );
  if (compareVersions(release.version, from) < 0 && !isOneBack({ from, to: release.version, before: data?.before }))
    throw new UpgradeError(
      "wrong-version",
      `${release.version} is more than one version back from ${from}; go back step by step, or restore a backup into a fresh --data-dir`,
    );
  return { layout, release, engine, data, from, place };
}

/** The copy of the store that has to be restored; undefined where the release can read the store as it is. */
async function checkData(
  { layout, release, data, from }: Situation,
  restoreData: boolean,
): Promise<string | undefined> {
  if (data === undefined || data.storeFormat <= release.storeFormat) return undefined;
  const why = `the data is of format ${data.storeFormat}, written by ${from}, and ${release.version} reads ${release.storeFormat}`;
  const copy = await findStoreCopy(layout, release.version);
  if (copy === undefined)
    throw new UpgradeError(
      "data-too-new",
      `${why}; no copy from before is there, so stay with ${from}, or restore a backup into a fresh --data-dir`,
    );
  if (restoreData) return copy;
  const madeAt = new Date(Number(/-at-(\d+)\./.exec(copy)?.[1] ?? 0)).toISOString();
  throw new UpgradeError(
    "data-too-new",
    `${why}; a copy of ${madeAt} is there: with --restore-data it takes the place of what was written since, which stays beside it`,
  );
}

function needsEngine({ from }: Situation): UpgradeError {
  return new UpgradeError(
    "data-too-new",
    `a copy of the store is restored by a running engine; start ${from} with up first`,
  );
}

function isDone({ release, engine, place }: Situation): boolean {
  const isInstalled = isSame(place.recordText(release.version), release);
  const isCurrent = place.current() === place.dirOf(release.version);
  return isInstalled && isCurrent && (engine === undefined || engine.installation === place.dirOf(release.version));
}

function isSame(text: string | undefined, release: ReleaseRecord): boolean {
  return text !== undefined && JSON.stringify(parseRecord(text)) === JSON.stringify(release);
}

async function install({ release, place }: Situation, { file, onStep }: UpgradeOptions): Promise<void> {
  const text = place.recordText(release.version);
  if (isSame(text, release)) return;
  if (text !== undefined)
    throw new UpgradeError(
      "wrong-version",
      `another release ${release.version} is in ${place.dirOf(release.version)} already; a version names one release, so remove that directory or take the other file`,
    );
  onStep(`unpacking ${release.version}`);
  const dir = place.makePartial();
  try {
    await readReleaseFile(file, dir);
    await tryOut(dir, release);
    place.adopt(dir, release);
  } catch (error) {
    rmSync(dir, { recursive: true, force: true });
    throw error;
  }
}

/** Longer than a first start from a cold disk takes. */
const tryOutMs = 30_000;

/** A release that cannot even say its version here, for want of a library or a processor's features, is never switched to. */
async function tryOut(dir: string, { version }: ReleaseRecord): Promise<void> {
  const { stdout } = await execute(path.join(dir, "bin/agent-sandbox"), ["--version"], { timeout: tryOutMs }).catch(
    (cause: unknown) => {
      throw new UpgradeError(
        "wrong-machine",
        `${version} does not run on this machine: ${String((cause as Error).message).trim()}`,
        { cause },
      );
    },
  );
  if (stdout.trim() !== version)
    throw new UpgradeError(
      "not-a-release",
      `the release says that it is ${stdout.trim()}, and its file that it is ${version}`,
    );
}

/** The record is one small file in memory. */
const lookEveryMs = 25;

/** Longer than a guard takes from its start until it acts. */
const guardStartMs = 2_000;

/** Longer than systemd waits before it starts a service again, and a start takes. */
const othersStartMs = 15_000;

/** Resolves when the other version answers; rejects when the one before does again. */
async function arrival({ layout, release, engine }: Situation): Promise<void> {
  const endMs = performance.now() + switchEndLimitMs;
  let seenMs = performance.now();
  let guard: ProcessIdentity | undefined;
  while (performance.now() < endMs) {
    const [failure, record] = [readSwitchFailure(layout), readEngineRecord(layout)];
    if (record !== undefined && record.version === release.version && record.startedAt !== engine?.startedAt) return;
    if (failure !== undefined && record !== undefined)
      throw new UpgradeError(
        "rolled-back",
        `${release.version} did not start (${failure.message}); ${record.version} runs again, see ${path.join(layout.logsDir, "supervisor.log")}`,
      );
    guard = readSwitchOrder(layout)?.guard ?? guard;
    const nowMs = performance.now();
    if ([engine?.supervisor, guard].some((each) => each !== undefined && isAlive(each))) seenMs = nowMs;
    // Where systemd starts the version before again, neither of the two lives meanwhile.
    if (nowMs - seenMs > (failure === undefined ? guardStartMs : othersStartMs)) break;
    await sleep(lookEveryMs);
  }
  throw new UpgradeError(
    "timeout",
    `no engine answers after the switch to ${release.version}; see ${layout.logsDir}, and start it with up`,
  );
}
