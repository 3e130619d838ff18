import { Session } from "node:inspector/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** What may be profiled: nothing, the processor, or everything there is. */
export type ProfilingLevel = "off" | "cpu" | "all";

/** An answer of the profiling endpoints. */
export interface ProfileAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Long enough for any question; a profile buffers in memory. */
const secondsMax = 300;

/** Profiles of the reference that V8 has no counterpart of. */
const unavailable = ["symbol", "goroutine", "allocs", "block", "mutex", "trace", "threadcreate"];

/** Answers the reference's `/debug/...` paths with V8's profiles; undefined: there is no such path. One profile at a time. */
export class Profiles {
  readonly #level: ProfilingLevel;
  #busy = false;

  constructor(level: ProfilingLevel) {
    this.#level = level;
  }

  /** The answer to a request for this URL. */
  async answer(url: string): Promise<ProfileAnswer | undefined> {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    if (this.#level === "off" || !pathname.startsWith("/debug/")) return undefined;
    const seconds = Math.min(secondsMax, Math.max(0, Number(searchParams.get("seconds") ?? 30) || 0));
    if (pathname === "/debug/pprof/profile") return this.#alone(() => cpuProfile(seconds));
    if (this.#level !== "all") return undefined;
    const name = pathname.replace(/^\/debug\/(pprof\/?)?/, "");
    if (name === "")
      return text(200, "profile: V8 CPU profile (?seconds=30)\nheap: V8 sampling heap profile\ncmdline\n");
    if (name === "cmdline") return text(200, process.argv.join("\0"));
    if (name === "heap") return this.#alone(() => heapProfile(seconds));
    if (name === "fgprof") return this.#alone(() => cpuProfile(seconds));
    if (!unavailable.includes(name)) return undefined;
    return text(501, `${name}: this runtime has no such profile; profile and heap are served\n`);
  }

  async #alone(take: () => Promise<object>): Promise<ProfileAnswer> {
    if (this.#busy) return text(500, "a profile is being taken already\n");
    this.#busy = true;
    try {
      return { status: 200, type: "application/json", body: JSON.stringify(await take()) };
    } finally {
      this.#busy = false;
    }
  }
}

function text(status: number, body: string): ProfileAnswer {
  return { status, type: "text/plain; charset=utf-8", body };
}

async function cpuProfile(seconds: number): Promise<object> {
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.start");
    await sleep(seconds * 1_000);
    return (await session.post("Profiler.stop")).profile;
  } finally {
    session.disconnect();
  }
}

async function heapProfile(seconds: number): Promise<object> {
  const session = new Session();
  session.connect();
  try {
    await session.post("HeapProfiler.startSampling");
    await sleep(seconds * 1_000);
    return (await session.post("HeapProfiler.stopSampling")).profile;
  } finally {
    session.disconnect();
  }
}
