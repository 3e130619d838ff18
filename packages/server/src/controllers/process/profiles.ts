import { Session } from "node:inspector/promises";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

type IntervalHistogram = ReturnType<typeof monitorEventLoopDelay>;

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

/** Profiles of the reference that this runtime has no counterpart of. */
const unavailable = ["symbol", "trace", "threadcreate"];

/** How closely waiting is watched; the reference's flags, whose nearest counterparts here are named beside them. */
export interface ProfilingRates {
  /** `--pprof-block-profile-rate`, in nanoseconds: how often the delay of the event loop is sampled; 0 or less: never. */
  readonly blockRateNs: number;
  /** `--pprof-mutex-profile-fraction`: 0 or less turns off how much of the time work waited for the one event loop. */
  readonly mutexFraction: number;
}

/** What the index lists. */
const index = [
  "profile: V8 CPU profile (?seconds=30)",
  "heap: V8 sampling heap profile (?seconds=30)",
  "allocs: the same, with what was collected meanwhile",
  "block: how long the event loop was held up, since the last question, in nanoseconds",
  "mutex: how much of the time the event loop was taken, since the last question",
  "goroutine: what the process waits for, by kind",
  "cmdline",
  "",
].join("\n");

/** Answers the reference's `/debug/...` paths with V8's profiles; undefined: there is no such path. One profile at a time. */
export class Profiles implements Disposable {
  readonly #level: ProfilingLevel;
  readonly #delay: IntervalHistogram | undefined;
  readonly #countsUse: boolean;
  #use = performance.eventLoopUtilization();
  #busy = false;

  constructor(level: ProfilingLevel, { blockRateNs, mutexFraction }: ProfilingRates) {
    this.#level = level;
    this.#countsUse = mutexFraction > 0;
    if (level !== "all" || blockRateNs <= 0) return;
    // The runtime samples in whole milliseconds.
    this.#delay = monitorEventLoopDelay({ resolution: Math.max(1, Math.round(blockRateNs / 1e6)) });
    this.#delay.enable();
  }

  /** The answer to a request for this URL. */
  async answer(url: string): Promise<ProfileAnswer | undefined> {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    if (this.#level === "off" || !pathname.startsWith("/debug/")) return undefined;
    const seconds = Math.min(secondsMax, Math.max(0, Number(searchParams.get("seconds") ?? 30) || 0));
    if (pathname === "/debug/pprof/profile") return this.#alone(() => cpuProfile(seconds));
    if (this.#level !== "all") return undefined;
    return this.#debug(pathname.replace(/^\/debug\/(pprof\/?)?/, ""), seconds);
  }

  [Symbol.dispose](): void {
    this.#delay?.disable();
  }

  async #debug(name: string, seconds: number): Promise<ProfileAnswer | undefined> {
    switch (name) {
      case "":
        return text(200, index);
      case "cmdline":
        return text(200, process.argv.join("\0"));
      case "heap":
        return this.#alone(() => heapProfile(seconds, false));
      case "allocs":
        return this.#alone(() => heapProfile(seconds, true));
      case "fgprof":
        return this.#alone(() => cpuProfile(seconds));
      case "goroutine":
        return json(countsOf(process.getActiveResourcesInfo()));
      case "block":
        return this.#delay === undefined ? off("--pprof-block-profile-rate") : json(takeDelays(this.#delay));
      case "mutex":
        return this.#countsUse ? json(this.#takeUse()) : off("--pprof-mutex-profile-fraction");
      default:
        if (!unavailable.includes(name)) return undefined;
        return text(501, `${name}: this runtime has no such profile; /debug/pprof/ lists what it has\n`);
    }
  }

  #takeUse(): object {
    const { utilization, active, idle } = performance.eventLoopUtilization(this.#use);
    this.#use = performance.eventLoopUtilization();
    return { utilization, activeMs: active, idleMs: idle };
  }

  async #alone(take: () => Promise<object>): Promise<ProfileAnswer> {
    if (this.#busy) return text(500, "a profile is being taken already\n");
    this.#busy = true;
    try {
      return json(await take());
    } finally {
      this.#busy = false;
    }
  }
}

function json(body: object): ProfileAnswer {
  return { status: 200, type: "application/json", body: JSON.stringify(body) };
}

function off(flag: string): ProfileAnswer {
  return text(404, `turned off by ${flag}\n`);
}

/** What was measured since the last question. */
function takeDelays(delay: IntervalHistogram): object {
  const { count, min, max, mean } = delay;
  const percentiles = Object.fromEntries([50, 90, 99].map((share) => [`p${share}`, delay.percentile(share)]));
  delay.reset();
  return { count, min, max, mean, ...percentiles };
}

function countsOf(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
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

async function heapProfile(seconds: number, includeCollected: boolean): Promise<object> {
  const session = new Session();
  session.connect();
  try {
    const collected = { includeObjectsCollectedByMajorGC: true, includeObjectsCollectedByMinorGC: true };
    await session.post("HeapProfiler.startSampling", includeCollected ? collected : {});
    await sleep(seconds * 1_000);
    return (await session.post("HeapProfiler.stopSampling")).profile;
  } finally {
    session.disconnect();
  }
}
