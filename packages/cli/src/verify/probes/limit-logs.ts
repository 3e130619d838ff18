import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { pauseFor } from "@agent-sandbox/sdk/timing/pause";
import type { Attempt, Outcome, Place } from "../attempt.ts";
import type { Ground } from "../ground.ts";
import { type LookProbe, named } from "../probe.ts";

const run = promisify(execFile);
const mebibyte = 2 ** 20;

/** What the log of one sandbox may take: the file system that it lies in has 128 MiB (`stateBytes` in node/pods), and an eighth more is left for what else the engine writes. */
const keptBytesMax = 144 * mebibyte;
/** Far more than may be kept. 43 MB a second were written on a machine of two busy processors. */
const floodBytes = 256 * mebibyte;
/** What shows that a log is kept at all. */
const keptBytesMin = mebibyte;
/** A neighbour's log may take this much longer to read; a calm machine needs some 10 ms for it. */
const delayMsMax = 1_000;
const readsMin = 5;
/** A node allows 16 open logs for one sandbox: that many begin in 4 s. */
const readEveryMs = 250;

interface Read {
  readonly ms: number;
  readonly bytes: number;
  readonly text: string;
  readonly isRead: boolean;
}

/** Reads a log through the API. Only its beginning is kept as text. */
async function readLog({ engine, namespace, marks }: Ground, at: Place, query: string): Promise<Read> {
  const startedMs = performance.now();
  const path = `/api/v1/namespaces/${namespace}/pods/${marks[at].name}/log?${query}`;
  const { status, body } = await engine.client.transport.request({ method: "GET", path });
  let [bytes, text] = [0, ""];
  for await (const chunk of body) {
    bytes += chunk.length;
    if (text.length < 1_000) text += Buffer.from(chunk).toString("utf8");
  }
  return { ms: performance.now() - startedMs, bytes, text, isRead: status === 200 };
}

/**
 * The median of reads of a neighbour's log, until `isOver` and at least `readsMin`. They begin at a fixed pace whether or not the one before has
 * ended: where each waited for the last, many quick ones between two standstills would hide them. One that is refused never ends.
 */
async function readMs(ground: Ground, isOver: () => boolean, signal: AbortSignal): Promise<number> {
  const reads: Promise<number>[] = [];
  while (reads.length < readsMin || !isOver()) {
    reads.push(
      readLog(ground, "neighbour", "tailLines=20").then(({ ms, isRead }) => (isRead ? ms : Number.POSITIVE_INFINITY)),
    );
    await pauseFor(readEveryMs, signal);
  }
  const taken = await Promise.all(reads);
  return taken.toSorted((a, b) => a - b)[Math.floor(taken.length / 2)] ?? Number.POSITIVE_INFINITY;
}

/** What the engine has on its disk; of sparse files only what is there. */
async function diskBytes(dataDir: string): Promise<number> {
  // A file that goes while it is counted makes `du` end with 1, and what it counted is good.
  const { stdout } = await run("du", ["-sx", "--block-size=1", dataDir]).catch(
    (error: unknown) => error as { stdout: string },
  );
  return Number.parseInt(stdout, 10);
}

async function write(ground: Ground, at: Place, bytes: number, signal: AbortSignal): Promise<Outcome> {
  const attempt: Attempt = { at, do: "log", name: ground.marks[at].name, number: bytes };
  const [outcome] = await ground.tryAt(at, [attempt], signal);
  return named(attempt, outcome ?? { through: false, unknown: true, detail: "no answer from the probe" });
}

/** A sandbox writes log as fast as it can: little of it is kept, and its neighbour's log is read as before. */
export const logsProbe: LookProbe = {
  id: "limits/logs",
  tries: "fill the disk with its log, or hold up its neighbour's",
  isAlone: true,
  look: async (ground, signal) => {
    const line = await write(ground, "neighbour", 1, signal);
    if (!line.through) return `the log of a sandbox cannot be written from inside: ${line.detail}`;
    const { text } = await readLog(ground, "neighbour", "tailLines=20");
    const isThere = text.includes(ground.marks.neighbour.name);
    const calmMs = await readMs(ground, () => true, signal);
    const dataDir = ground.host?.dataDir;
    const before = dataDir === undefined ? 0 : await diskBytes(dataDir);
    let isOver = false;
    const [flood, floodedMs] = await Promise.all([
      write(ground, "prisoner", floodBytes, signal).finally(() => (isOver = true)),
      readMs(ground, () => isOver, signal),
    ]);
    const grown = dataDir === undefined ? 0 : (await diskBytes(dataDir)) - before;
    const kept = await readLog(ground, "prisoner", `limitBytes=${keptBytesMax + 1}`);
    const toMebibytes = (bytes: number): string => `${Math.round(bytes / mebibyte)} MiB`;
    const sizes = `${toMebibytes(kept.bytes)} can be read, the engine's disk grew by ${toMebibytes(grown)}, of ${toMebibytes(keptBytesMax)} that it may`;
    const times = `${calmMs.toFixed(0)} ms before, ${floodedMs.toFixed(0)} ms meanwhile`;
    return {
      attempts: [
        { ...flood, through: Math.max(kept.bytes, grown) > keptBytesMax, detail: `${flood.detail}; ${sizes}` },
        { through: floodedMs > calmMs + delayMsMax, detail: `reading the neighbour's log: ${times}` },
      ],
      controls: [
        { through: isThere, detail: `the neighbour's line is in its log: ${isThere}` },
        { through: flood.through && kept.bytes >= keptBytesMin, detail: `${flood.detail}; ${sizes}` },
      ],
    };
  },
};
