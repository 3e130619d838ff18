import type { Probe } from "../probe.ts";

const at = "prisoner";

/** What two sandboxes must not share besides the network. */
export const neighbourProbes: readonly Probe[] = [
  {
    id: "neighbours/files",
    tries: "find a file of another sandbox",
    plan: ({ marks }) => ({
      attempts: [{ at, do: "find", name: marks.neighbour.name }],
      controls: [{ at, do: "find", name: marks.prisoner.name }],
    }),
  },
  {
    id: "neighbours/processes",
    tries: "see a process of another sandbox",
    plan: ({ marks }) => ({
      attempts: [{ at, do: "process", name: marks.neighbour.name }],
      controls: [{ at, do: "process", name: marks.prisoner.name }],
    }),
  },
  {
    id: "neighbours/memory",
    tries: "share memory or an abstract socket with another sandbox",
    plan: ({ marks }) => ({
      attempts: [
        { at, do: "segment", number: marks.neighbour.key },
        { at, do: "socket", path: `@${marks.neighbour.name}` },
      ],
      controls: [
        { at, do: "segment", number: marks.prisoner.key },
        { at, do: "socket", path: `@${marks.prisoner.name}` },
      ],
    }),
  },
];
