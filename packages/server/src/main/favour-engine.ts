import { writeFileSync } from "node:fs";
import os from "node:os";

/** Low enough that the kernel looks at everything else first when the whole machine is out of memory, and not so low that it never may. */
const oomScoreAdj = -900;

/** Three times the weight of an ordinary process. What sandboxes do is weighed in a group of their own, whatever its processes inherit. */
const niceness = -5;

/**
 * Makes the kernel prefer this process and those that it starts to others, as far as it may: both need rights that a container may lack.
 * Without them sandboxes still go first, because theirs are raised.
 */
export function favourEngine(): void {
  ifPermitted(() => writeFileSync("/proc/self/oom_score_adj", String(oomScoreAdj)));
  ifPermitted(() => os.setPriority(niceness));
}

function ifPermitted(change: () => void): void {
  try {
    change();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EACCES" && code !== "EPERM" && code !== "ERR_SYSTEM_ERROR") throw error;
  }
}
