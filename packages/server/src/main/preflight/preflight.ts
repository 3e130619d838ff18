import { EngineError } from "../engine-error.ts";
import { lookAtClock } from "./clock.ts";
import { lookAtDataDirectory, lookAtDisk, lookAtOtherEngines } from "./data-directory.ts";
import { lookAtListeners } from "./listeners.ts";
import type { StartCheck, StartQuestion } from "./look.ts";
import { lookAtCgroups, lookAtFileSystems, lookAtMachine, lookAtPacketFilter, lookAtTools } from "./machine.ts";
import { lookAtRights, lookAtUser } from "./rights.ts";

/** Everything that must be so before an engine starts, in the order of asking: `doctor` lists all of it, a start ends at the first that is broken. */
export const startChecks: readonly StartCheck[] = [
  { title: "machine", look: lookAtMachine },
  { title: "privileges", look: lookAtUser },
  { title: "clock", look: lookAtClock },
  { title: "data directory", look: lookAtDataDirectory },
  { title: "other engines", look: lookAtOtherEngines },
  { title: "addresses", look: lookAtListeners },
  { title: "disk", look: lookAtDisk },
  { title: "rights", look: lookAtRights },
  { title: "cgroups", look: lookAtCgroups },
  { title: "file systems", look: () => lookAtFileSystems() },
  { title: "packet filter", look: lookAtPacketFilter },
  { title: "system tools", look: lookAtTools },
];

/**
 * Throws one sentence about the first thing that keeps an engine from starting. Nothing was made before, and nothing is left behind.
 * Resolves with the sentences about what is worse than it could be.
 */
export async function assertStartable(question: StartQuestion): Promise<readonly string[]> {
  // At once, because two of them wait for a program; told in their order, because what is broken first breaks the rest.
  const looks = await Promise.allSettled(startChecks.map(async ({ look }) => look(question)));
  const warnings: string[] = [];
  for (const outcome of looks) {
    if (outcome.status === "rejected") throw outcome.reason;
    const { verdict, detail, advice, code } = outcome.value;
    const sentence = advice === undefined ? detail : `${detail}; ${advice}`;
    if (verdict === "broken") throw new EngineError(sentence, code === undefined ? {} : { code });
    if (verdict === "warning") warnings.push(sentence);
  }
  return warnings;
}
