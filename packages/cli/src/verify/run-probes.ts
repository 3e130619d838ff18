import type { Attempt, Outcome, Place } from "./attempt.ts";
import type { Ground } from "./ground.ts";
import {
  type Finding,
  judge,
  type Look,
  named,
  notApplicable,
  type Probe,
  type Trial,
  type TrialProbe,
} from "./probe.ts";

/** Hears what is being tried. */
export type OnProgress = (text: string) => void;

/** Makes every probe; findings are in the probes' order. Attempts that disturb nothing are made together, the others one by one. */
export async function runProbes(
  probes: readonly Probe[],
  ground: Ground,
  { signal, onProgress }: { readonly signal: AbortSignal; readonly onProgress: OnProgress },
): Promise<Finding[]> {
  const found = new Map<string, Finding>();
  const together: { readonly probe: TrialProbe; readonly trial: Trial }[] = [];
  for (const probe of probes) {
    if (!("plan" in probe) || probe.isAlone === true) continue;
    const trial = probe.plan(ground);
    if (typeof trial === "string") found.set(probe.id, notApplicable(probe, trial));
    else together.push({ probe, trial });
  }
  onProgress("attempts from inside");
  const looks = await lookTogether(
    ground,
    together.map(({ trial }) => trial),
    signal,
  );
  for (const [index, { probe }] of together.entries()) found.set(probe.id, judge(probe, looks[index] ?? nothing));
  const one = async (probe: Probe): Promise<void> => {
    const look = await lookOnce(probe, ground, signal);
    found.set(probe.id, typeof look === "string" ? notApplicable(probe, look) : judge(probe, look));
  };
  await Promise.all(probes.filter((probe) => "look" in probe && probe.isAlone !== true).map(one));
  for (const probe of probes.filter(({ isAlone }) => isAlone === true)) {
    onProgress(probe.tries);
    await one(probe);
  }
  return probes.flatMap(({ id }) => found.get(id) ?? []);
}

/** What one probe sees, made for itself. */
async function lookOnce(probe: Probe, ground: Ground, signal: AbortSignal): Promise<Look | string> {
  if ("look" in probe) return probe.look(ground, signal);
  const trial = probe.plan(ground);
  return typeof trial === "string" ? trial : lookAlone(ground, trial, signal);
}

const nothing: Look = { attempts: [], controls: [] };

/** One call per place for all trials. */
async function lookTogether(ground: Ground, trials: readonly Trial[], signal: AbortSignal): Promise<Look[]> {
  const all = trials.flatMap(({ attempts, controls }) => [...attempts, ...controls]);
  const outcomes = new Map<Attempt, Outcome>();
  await Promise.all(
    (["host", "prisoner", "neighbour", "confined"] as const).map(async (place: Place) => {
      const here = all.filter(({ at }) => at === place);
      if (here.length === 0) return;
      const seen = await ground.tryAt(place, here, signal);
      for (const [index, attempt] of here.entries()) outcomes.set(attempt, seen[index] ?? unanswered);
    }),
  );
  const of = (attempt: Attempt): Outcome =>
    named(attempt, whereSeen(ground, attempt, outcomes.get(attempt) ?? unanswered));
  return trials.map(({ attempts, controls }) => ({ attempts: attempts.map(of), controls: controls.map(of) }));
}

const unanswered: Outcome = { through: false, unknown: true, detail: "no answer from the probe" };

/** A forged packet has come through if it arrived; its sender cannot know. */
function whereSeen({ outside }: Ground, attempt: Attempt, outcome: Outcome): Outcome {
  if (attempt.do !== "forge" || attempt.name === undefined) return outcome;
  const hasArrived = outside?.noted().includes(attempt.name) === true;
  return {
    ...outcome,
    through: hasArrived,
    detail: `${outcome.detail}; ${hasArrived ? "it arrived" : "it did not arrive"}`,
  };
}

/** Controls first: an attempt may end the sandbox that they are made in. */
async function lookAlone(ground: Ground, { attempts, controls }: Trial, signal: AbortSignal): Promise<Look> {
  const each = async (list: readonly Attempt[]): Promise<Outcome[]> => {
    const seen: Outcome[] = [];
    for (const attempt of list) {
      const [outcome = unanswered] = await ground.tryAt(attempt.at, [attempt], signal);
      seen.push(named(attempt, outcome));
    }
    return seen;
  };
  const seenControls = await each(controls);
  return { attempts: await each(attempts), controls: seenControls };
}
