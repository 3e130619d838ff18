import { readdirSync, readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { Counter, Gauge, type Registry } from "prom-client";

/**
 * Figures of this process under the names that every client library of Prometheus uses, read at each scrape. The library's
 * own set has a histogram of the event loop's delay besides, whose timer wakes an idle process a hundred times a second.
 */
export function addProcessMetrics(registry: Registry): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => number): void => {
    new Gauge({ name, help, registers, collect: set });
    function set(this: Gauge): void {
      this.set(read());
    }
  };
  const counter = (name: string, help: string, readMicroseconds: () => number): void => {
    new Counter({ name, help, registers, collect: set });
    function set(this: Counter): void {
      this.reset();
      this.inc(readMicroseconds() / 1e6);
    }
  };
  const cpu = (): NodeJS.CpuUsage => process.cpuUsage();
  counter("process_cpu_user_seconds_total", "Total user CPU time spent in seconds.", () => cpu().user);
  counter("process_cpu_system_seconds_total", "Total system CPU time spent in seconds.", () => cpu().system);
  counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", () => {
    const { user, system } = cpu();
    return user + system;
  });
  const startSeconds = Math.round(Date.now() / 1000 - process.uptime());
  gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", () => startSeconds);
  gauge("process_resident_memory_bytes", "Resident memory size in bytes.", () => process.memoryUsage.rss());
  gauge("process_open_fds", "Number of open file descriptors.", () => readdirSync("/proc/self/fd").length - 1);
  gauge("process_max_fds", "Maximum number of open file descriptors.", descriptorsMax);
  const memory = (): NodeJS.MemoryUsage => process.memoryUsage();
  gauge("nodejs_heap_size_total_bytes", "Process heap size from Node.js in bytes.", () => memory().heapTotal);
  gauge("nodejs_heap_size_used_bytes", "Process heap size used from Node.js in bytes.", () => memory().heapUsed);
  gauge("nodejs_external_memory_bytes", "Node.js external memory size in bytes.", () => memory().external);
  gauge("nodejs_eventloop_utilization", "Share of its time that the event loop was busy, since the last time.", busy());
  new Gauge({
    name: "nodejs_version_info",
    help: "Node.js version info.",
    labelNames: ["version"],
    registers,
  }).set({ version: process.version }, 1);
}

/** How busy the event loop was between one call and the next. */
function busy(): () => number {
  let before = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, before);
    before = now;
    return utilization;
  };
}

function descriptorsMax(): number {
  const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
  return Number(soft);
}
