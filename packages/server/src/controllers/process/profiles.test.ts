import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { Profiles, type ProfilingLevel } from "./profiles.ts";

const rates = { blockRateNs: 1_000_000, mutexFraction: 10 };

describe("Profiles", () => {
  const rows: [string, ProfilingLevel, string, number | undefined][] = [
    ["nothing unless asked for", "off", "/debug/pprof/profile?seconds=0", undefined],
    ["the processor", "cpu", "/debug/pprof/profile?seconds=0.01", 200],
    ["no heap by --enable-pprof alone", "cpu", "/debug/pprof/heap", undefined],
    ["an index", "all", "/debug/pprof/", 200],
    ["the heap", "all", "/debug/pprof/heap?seconds=0.01", 200],
    ["the command line", "all", "/debug/pprof/cmdline", 200],
    ["wall-clock profile", "all", "/debug/fgprof?seconds=0.01", 200],
    ["allocations", "all", "/debug/pprof/allocs?seconds=0.01", 200],
    ["what the process waits for", "all", "/debug/pprof/goroutine", 200],
    ["how long the loop was held up", "all", "/debug/pprof/block", 200],
    ["how much of the time the loop was taken", "all", "/debug/pprof/mutex", 200],
    ["what V8 does not have", "all", "/debug/pprof/trace", 501],
    ["what nobody has", "all", "/debug/pprof/nonsense", undefined],
    ["metrics are not profiles", "all", "/metrics", undefined],
  ];
  test.each(rows)("Profiles: %s", async (_title, level, url, status) => {
    using profiles = new Profiles(level, rates);
    expect((await profiles.answer(url))?.status).toBe(status);
  });

  test("Profiles: the two rates turn their profiles off", async () => {
    using profiles = new Profiles("all", { blockRateNs: 0, mutexFraction: -1 });
    expect(await profiles.answer("/debug/pprof/block")).toMatchObject({
      status: 404,
      body: "turned off by --pprof-block-profile-rate\n",
    });
    expect((await profiles.answer("/debug/pprof/mutex"))?.body).toContain("--pprof-mutex-profile-fraction");
  });

  test("Profiles: an event loop that is held up shows in block and mutex", async () => {
    using profiles = new Profiles("all", rates);
    await sleep(20);
    await profiles.answer("/debug/pprof/mutex");
    const untilMs = performance.now() + 60;
    while (performance.now() < untilMs);
    await sleep(20);
    const [block, mutex] = await Promise.all(["block", "mutex"].map((name) => profiles.answer(`/debug/pprof/${name}`)));
    expect(JSON.parse(block?.body ?? "{}")["max"]).toBeGreaterThan(40e6);
    expect(JSON.parse(mutex?.body ?? "{}")["activeMs"]).toBeGreaterThan(40);
  });

  test("Profiles: a CPU profile has nodes and samples", async () => {
    const answer = await new Profiles("cpu", rates).answer("/debug/pprof/profile?seconds=0.02");
    expect(JSON.parse(answer?.body ?? "{}")).toMatchObject({ nodes: expect.any(Array), samples: expect.any(Array) });
  });

  test("Profiles: a second one at the same time is refused", async () => {
    const profiles = new Profiles("all", rates);
    const first = profiles.answer("/debug/fgprof?seconds=0.05");
    expect((await profiles.answer("/debug/fgprof"))?.status).toBe(500);
    expect((await first)?.status).toBe(200);
  });
});
