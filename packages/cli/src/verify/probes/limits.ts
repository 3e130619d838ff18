import type { Attempt } from "../attempt.ts";
import type { Probe } from "../probe.ts";

const at = "confined";
const mebibyte = 2 ** 20;

/** Twice what any sandbox of ours may have: its processes end at their own limit, or at that of its memory. */
const processesTried = 5_000;

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
      controls: [{ at, do: "processes", number: 50 }],
    }),
  },
  {
    id: "limits/memory",
    tries: "take twice its memory, as memory and as files in /tmp and /dev/shm, which may lie in it",
    isAlone: true,
    plan: ({ limits: { memoryBytes } }) => ({
      attempts: [
        { at, do: "memory", number: memoryBytes * 2 },
        ...["/tmp", "/dev/shm"].map((path): Attempt => ({ at, do: "disk", path, number: memoryBytes * 2 })),
      ],
      controls: [
        { at, do: "memory", number: memoryBytes / 8 },
        { at, do: "disk", path: "/tmp", number: 4 * mebibyte },
      ],
    }),
  },
];
