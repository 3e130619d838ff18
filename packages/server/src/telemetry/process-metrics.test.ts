import { spawnSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { createMetricsRegistry } from "./metrics.ts";

async function valuesOf(): Promise<Map<string, number>> {
  const text = await createMetricsRegistry({ processMetrics: true }).metrics();
  return new Map(
    [...text.matchAll(/^(\w+)(?:\{[^}]*\})? (\S+)$/gm)].map(([, name, value]) => [name ?? "", Number(value)]),
  );
}

test("process metrics: what every process says of itself is there and plausible", async () => {
  const values = await valuesOf();
  const cpu = process.cpuUsage();
  expect(values.get("process_cpu_seconds_total")).toBeGreaterThan(0);
  expect(values.get("process_cpu_seconds_total")).toBeLessThanOrEqual((cpu.user + cpu.system) / 1e6);
  expect(values.get("process_resident_memory_bytes")).toBeGreaterThan(2 ** 24);
  expect(values.get("process_open_fds")).toBeGreaterThan(2);
  expect(values.get("process_max_fds")).toBeGreaterThanOrEqual(values.get("process_open_fds") ?? Number.NaN);
  expect(Math.abs((values.get("process_start_time_seconds") ?? 0) - Date.now() / 1000)).toBeLessThan(3600);
  expect(values.get("nodejs_heap_size_used_bytes")).toBeLessThanOrEqual(
    values.get("nodejs_heap_size_total_bytes") ?? 0,
  );
  expect(values.get("nodejs_version_info")).toBe(1);
});

test("process metrics: a counter does not grow by being read", async () => {
  const registry = createMetricsRegistry({ processMetrics: true });
  await registry.metrics();
  const text = await registry.metrics();
  const [, seconds] = /^process_cpu_user_seconds_total (\S+)$/m.exec(text) ?? [];
  expect(Number(seconds)).toBeLessThanOrEqual(process.cpuUsage().user / 1e6);
});

test("process metrics: a process that nobody asks sleeps", () => {
  const program = `
    import { readFileSync } from "node:fs";
    import { createMetricsRegistry } from ${JSON.stringify(path.join(import.meta.dirname, "metrics.ts"))};
    const wakes = () => Number(/^voluntary_ctxt_switches:\\s+(\\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))[1]);
    createMetricsRegistry({ processMetrics: true });
    setTimeout(() => {
      const before = wakes();
      setTimeout(() => process.stdout.write(String(wakes() - before)), 1_000);
    }, 500);`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" });
  expect([Number.parseInt(stdout, 10) < 30, stdout, stderr]).toEqual([true, expect.stringMatching(/^\d+$/), ""]);
});
