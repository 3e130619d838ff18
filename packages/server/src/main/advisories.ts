import { readFileSync } from "node:fs";
import { specFile } from "../installation/installation.ts";

/** A published weakness of something that sandboxes run on. */
export interface Advisory {
  readonly id: string;
  readonly component: string;
  /** First version that has it; absent: all before the fix. */
  readonly introduced?: string;
  /** First versions that are known not to have it, one per branch. Those of `runsc` are dates. */
  readonly fixed: readonly string[];
  readonly summary: string;
  /** Who published it. */
  readonly source: string;
}

/** A program and its version. */
export interface Installed {
  readonly component: string;
  readonly version: string;
}

/** A version of each component that has an advisory: what shows that a check finds one. */
export const knownBad: Readonly<Record<string, string>> = {
  runsc: "release-20240101.0",
  runc: "1.1.11",
  containerd: "1.6.37",
};

/** The committed list. */
export function readAdvisories(): readonly Advisory[] {
  return JSON.parse(readFileSync(specFile("advisories.json"), "utf8")) as readonly Advisory[];
}

/** Those that are about an installed version. A version that cannot be parsed matches every advisory of its component. */
export function advisoriesFor(list: readonly Advisory[], { component, version }: Installed): Advisory[] {
  const own = list.filter((advisory) => advisory.component === component);
  const numbers = component === "runsc" ? dateOf(version) : numbersOf(version);
  if (numbers === undefined) return own;
  return own.filter((advisory) => isAffected(advisory, numbers));
}

function isAffected({ component, introduced, fixed }: Advisory, version: readonly number[]): boolean {
  const read = component === "runsc" ? dateOf : numbersOf;
  const fixes = fixed.map(read).filter((numbers) => numbers !== undefined);
  if (introduced !== undefined && compare(version, read(introduced) ?? []) < 0) return false;
  // A branch is what the first two numbers say; a branch without a fix has it if it is older than all that have one.
  const ofBranch = fixes.find((fix) => fix.length > 1 && fix[0] === version[0] && fix[1] === version[1]);
  if (ofBranch !== undefined) return compare(version, ofBranch) < 0;
  const isNewer = fixes.some((fix) => compare(version, fix) >= 0);
  const isOldest = fixes.every((fix) => compare(version, fix) < 0);
  return isOldest || !isNewer;
}

/** The day in `release-20260824.0` and in `v0.0.0-20260905035102-160fafc42237`. */
function dateOf(version: string): number[] | undefined {
  const day = /(?:^|-)(20\d{6})(?:\d{6}-[0-9a-f]{12}$|\.\d+|$)/.exec(version)?.[1];
  return day === undefined ? undefined : [Number(day)];
}

/** `1.4.0-rc.3` as numbers; what is not a candidate comes behind all candidates of its version. */
function numbersOf(version: string): number[] | undefined {
  const match = /^v?(\d+)\.(\d+)(?:\.(\d+))?(?:-rc\.?(\d+))?/.exec(version);
  if (match === null) return undefined;
  const [, major, minor, patch = "0", candidate = "Infinity"] = match;
  return [major, minor, patch, candidate].map(Number);
}

function compare(a: readonly number[], b: readonly number[]): number {
  for (const [index, number] of a.entries()) {
    const other = b[index] ?? 0;
    if (number !== other) return number < other ? -1 : 1;
  }
  return 0;
}
