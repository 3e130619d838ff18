import type { ContainerStatus, Pod, PodSpec } from "./builtin.gen.ts";

/** Type of a Sandbox's condition while its Pod waits between two restarts of a container; `sandboxPhase` decides by it. */
export const crashLoopCondition = "CrashLoop";

/** What a kubelet calls the wait between two restarts; also the reason of the condition. */
export const crashLoopReason = "CrashLoopBackOff";

/** Lines and characters of a container's output that the condition shows; the rest is in its log. */
const linesMax = 5;
const textMax = 1024;

/** A container that ends again and again, and how it ended last. */
export interface CrashLoop {
  readonly container: string;
  readonly exitCode: number;
  /** Seconds that the last run took; undefined where its start is not known. */
  readonly ranSeconds: number | undefined;
  readonly restarts: number;
  /** RFC 3339: when it ended last. */
  readonly finishedAt: string;
  /** The end of its log or its termination message, harmless to a terminal; empty where there is none. */
  readonly lastLines: readonly string[];
}

/** The first container of a Pod that waits for its next restart after it ended. */
export function crashLoopOf(pod: Pod | undefined): CrashLoop | undefined {
  const statuses = [...(pod?.status?.initContainerStatuses ?? []), ...(pod?.status?.containerStatuses ?? [])];
  const found = statuses.find(({ state }) => state?.waiting?.reason === crashLoopReason);
  return found === undefined ? undefined : lastEnd(found);
}

function lastEnd({ name, lastState, restartCount }: ContainerStatus): CrashLoop | undefined {
  const end = lastState?.terminated;
  if (end?.finishedAt === undefined) return undefined;
  const ranMs = end.startedAt === undefined ? Number.NaN : Date.parse(end.finishedAt) - Date.parse(end.startedAt);
  return {
    container: name,
    exitCode: end.exitCode,
    ranSeconds: Number.isNaN(ranMs) ? undefined : Math.max(0, Math.round(ranMs / 1000)),
    restarts: restartCount,
    finishedAt: end.finishedAt,
    lastLines: lastLinesOf(end.message ?? ""),
  };
}

/** The last lines of a text that a guest wrote, without what a terminal would obey. */
function lastLinesOf(text: string): string[] {
  const lines = text
    .slice(-textMax)
    .split("\n")
    .map((line) => line.replace(/[^\x20-\x7e]/g, "?").trimEnd())
    .filter((line) => line !== "");
  return lines.slice(-linesMax);
}

/** How a crash loop reads in a condition, an Event and an error: the exit code, the last words, and what to add to the Sandbox. */
export function describeCrashLoop(crash: CrashLoop, spec: PodSpec | undefined): string {
  const { container, exitCode, ranSeconds, restarts, lastLines } = crash;
  const after = ranSeconds === undefined ? "" : ` after ${ranSeconds} s`;
  const times = restarts === 1 ? "once" : `${restarts} times`;
  const printed = lastLines.length === 0 ? "it printed nothing" : `it printed last: ${lastLines.join(" / ")}`;
  const own = [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])].find(({ name }) => name === container);
  const hasCommand = [...(own?.command ?? []), ...(own?.args ?? [])].length > 0;
  const whose = hasCommand ? "its command does not stay" : "its image's own program does not stay";
  return `container ${container} ended with exit code ${exitCode}${after} and was restarted ${times}; ${printed}; ${whose}: give the container one that does, for example command: ["sleep", "infinity"]`;
}
