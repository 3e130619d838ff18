import type { Attempt } from "../attempt.ts";
import type { Probe } from "../probe.ts";

const at = "confined";
const mebibyte = 2 ** 20;

/** Twice what any sandbox of ours may have: its processes end at their own limit, or at that of its memory. */
const processesTried = 5_000;

/** Far from the limit of memory: under a kubelet with gVisor ten took 60 to 86 MiB with all that is around them, fifty 160 and sometimes the whole 256. */
const processesHeld = 10;

/** Directories that lie in memory. On a cluster /tmp is part of the image's file system, whose size is what limits/disk is about. */
function inMemory(isOwn: boolean): string[] {
  return isOwn ? ["/tmp", "/dev/shm"] : ["/dev/shm"];
}

/** What a sandbox takes ends at its limits. Each may end the sandbox, which is made again. */
export const limitProbes: readonly Probe[] = [
  {
    id: "limits/disk",
    tries: "write more than its limit",
    isAlone: true,
    plan: ({ limits: { diskBytes } }) => ({
      attempts: [{ at, do: "disk", path: "/", number: diskBytes * 2 }],
      controls: [{ at, do: "disk", path: "/", number: 4 * mebibyte }],
    }),
  },
  {
    id: "limits/processes",
    tries: "hold thousands of processes",
    isAlone: true,
    plan: () => ({
      attempts: [{ at, do: "processes", number: processesTried }],
      controls: [{ at, do: "processes", number: processesHeld }],
    }),
  },
  {
    id: "limits/memory",
    tries: "take twice its memory, as memory and as files in /tmp and /dev/shm, which may lie in it",
    isAlone: true,
    plan: ({ limits: { memoryBytes }, isOwn }) => ({
      attempts: [
        { at, do: "memory", number: memoryBytes * 2 },
        ...inMemory(isOwn).map((path): Attempt => ({ at, do: "disk", path, number: memoryBytes * 2 })),
      ],
      controls: [
        { at, do: "memory", number: memoryBytes / 8 },
        { at, do: "disk", path: "/dev/shm", number: 4 * mebibyte },
      ],
    }),
  },
];
