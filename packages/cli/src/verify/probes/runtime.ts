import { advisoriesFor, knownBad, readAdvisories } from "@agent-sandbox/server/main/advisories";
import type { Outcome } from "../attempt.ts";
import type { LookProbe } from "../probe.ts";

/** The runtimes that sandboxes are in. A kubelet's Node tells the version of what starts them, not theirs. */
const walls = ["runsc", "runc"];

/** That the runtimes in use are none that are known to be broken. */
export const runtimeProbes: readonly LookProbe[] = [
  {
    id: "runtime/advisories",
    tries: "use a runtime whose version is known to be vulnerable",
    look: async ({ runtimes }) => {
      const entries = Object.entries(runtimes);
      if (entries.length === 0) return "the version of the runtime is not known";
      const list = readAdvisories();
      const check = ([component, version]: readonly [string, string]): Outcome => {
        const found = advisoriesFor(list, { component, version });
        const ids = found.map(({ id }) => id).join(", ");
        return {
          through: found.length > 0,
          detail: found.length === 0 ? "none" : `${component} ${version} has ${ids}`,
        };
      };
      const attempts = entries.map(check);
      const isTold = entries.some(([component]) => walls.includes(component));
      if (!isTold && attempts.every(({ through }) => !through)) {
        const known = entries.map((entry) => entry.join(" ")).join(", ");
        return `${known} has none, and the version of the runtime under it is not told by the API`;
      }
      return { attempts, controls: Object.entries(knownBad).map(check) };
    },
  },
];
