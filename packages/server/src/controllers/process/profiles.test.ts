import { describe, expect, test } from "vitest";
import { Profiles, type ProfilingLevel } from "./profiles.ts";

describe("Profiles", () => {
  const rows: [string, ProfilingLevel, string, number | undefined][] = [
    ["nothing unless asked for", "off", "/debug/pprof/profile?seconds=0", undefined],
    ["the processor", "cpu", "/debug/pprof/profile?seconds=0.01", 200],
    ["no heap by --enable-pprof alone", "cpu", "/debug/pprof/heap", undefined],
    ["an index", "all", "/debug/pprof/", 200],
    ["the heap", "all", "/debug/pprof/heap?seconds=0.01", 200],
    ["the command line", "all", "/debug/pprof/cmdline", 200],
    ["wall-clock profile", "all", "/debug/fgprof?seconds=0.01", 200],
    ["what V8 does not have", "all", "/debug/pprof/goroutine", 501],
    ["what nobody has", "all", "/debug/pprof/nonsense", undefined],
    ["metrics are not profiles", "all", "/metrics", undefined],
  ];
  test.each(rows)("Profiles: %s", async (_title, level, url, status) => {
    expect((await new Profiles(level).answer(url))?.status).toBe(status);
  });

  test("Profiles: a CPU profile has nodes and samples", async () => {
    const answer = await new Profiles("cpu").answer("/debug/pprof/profile?seconds=0.02");
    expect(JSON.parse(answer?.body ?? "{}")).toMatchObject({ nodes: expect.any(Array), samples: expect.any(Array) });
  });

  test("Profiles: a second one at the same time is refused", async () => {
    const profiles = new Profiles("all");
    const first = profiles.answer("/debug/fgprof?seconds=0.05");
    expect((await profiles.answer("/debug/fgprof"))?.status).toBe(500);
    expect((await first)?.status).toBe(200);
  });
});
