import { readFileSync } from "node:fs";
import { pauseFor } from "@agent-sandbox/sdk/timing/pause";
import type { Attempt, Outcome } from "../attempt.ts";
import type { Ground } from "../ground.ts";
import { type LookProbe, named } from "../probe.ts";

/** The part of the machine's table of open files that one sandbox may fill: two for each of the files it is given (`filesPerSandbox` in ociruntime). */
const tableShare = 8;
/** What counts as too much where the table is larger than anybody could fill. */
const takenMax = 131_072;
/** What a sandbox needs at any time: more than an editor, a compiler and a database together have open. */
const ordinaryCount = 1_000;
/** Long enough for a neighbour to open its own meanwhile. */
const holdMs = 3_000;
const lookEveryMs = 50;

/** How many files the whole machine has open, and how many it may have. */
function openFilesOfMachine(): { readonly open: number; readonly max: number } {
  const [open = 0, , max = 0] = readFileSync("/proc/sys/fs/file-nr", "utf8").trim().split(/\s+/).map(Number);
  return { open, max };
}

/** Watches the machine's table while something happens: by how many files it grew at most. */
async function growthDuring(work: () => Promise<Outcome>): Promise<{ outcome: Outcome; grown: number }> {
  const before = openFilesOfMachine().open;
  let most = before;
  const timer = setInterval(() => (most = Math.max(most, openFilesOfMachine().open)), lookEveryMs);
  try {
    const outcome = await work();
    return { outcome, grown: most - before };
  } finally {
    clearInterval(timer);
  }
}

async function tryOne(ground: Ground, attempt: Attempt, signal: AbortSignal): Promise<Outcome> {
  const [outcome] = await ground.tryAt(attempt.at, [attempt], signal);
  return named(attempt, outcome ?? { through: false, unknown: true, detail: "no answer from the probe" });
}

/** A neighbour opens what it needs, again and again until `isOver`; the first time it is refused, or the last that it is not. */
async function neighbourMeanwhile(ground: Ground, isOver: () => boolean, signal: AbortSignal): Promise<Outcome> {
  let last: Outcome;
  do {
    last = await tryOne(ground, { at: "neighbour", do: "files", path: "/", number: ordinaryCount }, signal);
    if (!last.through) break;
    await pauseFor(lookEveryMs, signal);
  } while (!isOver());
  return { through: !last.through, detail: `meanwhile, ${last.detail}` };
}

/** A sandbox opens files until it is refused: its neighbour must still get some, and the machine's table must have room. */
export const filesProbe: LookProbe = {
  id: "limits/files",
  tries: "open files until none is left for the machine or for a neighbour",
  isAlone: true,
  look: async (ground, signal) => {
    const { max } = openFilesOfMachine();
    const bound = Math.min(takenMax, Math.floor(max / tableShare));
    const ordinary = { do: "files", path: "/", number: ordinaryCount } as const;
    const controls = [
      await tryOne(ground, { ...ordinary, at: "prisoner" }, signal),
      await tryOne(ground, { ...ordinary, at: "neighbour" }, signal),
    ];
    // That files which are opened on the machine are seen in its table.
    if (ground.host !== undefined) {
      const seen = await growthDuring(() => tryOne(ground, { ...ordinary, at: "host", holdMs: 200 }, signal));
      const detail = `${seen.outcome.detail}; the machine's table grew by ${seen.grown}`;
      controls.push({ through: seen.outcome.through && seen.grown > ordinaryCount / 2, detail });
    }
    let isOver = false;
    const attempt: Attempt = { at: "prisoner", do: "files", path: "/", number: bound + ordinaryCount, holdMs };
    const [{ outcome, grown }, meanwhile] = await Promise.all([
      growthDuring(() => tryOne(ground, attempt, signal).finally(() => (isOver = true))),
      neighbourMeanwhile(ground, () => isOver, signal),
    ]);
    const taken = `${outcome.detail}; the machine's table grew by ${grown}, of ${bound} that it may`;
    // Elsewhere than on its machine the table that is seen here is not the sandboxes' one.
    const table = { ...outcome, through: grown > bound, detail: taken };
    return { attempts: [...(ground.host === undefined ? [] : [table]), meanwhile], controls };
  },
};
