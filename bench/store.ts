/** Appends per second with concurrent writers on a real file, every acknowledged write synced. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { openStore } from "../packages/server/src/store/sqlite-store.ts";

const writers = 16;
const durationMs = 3_000;
const valueBytes = 1_500;

const directory = mkdtempSync(join(tmpdir(), "bench-store-"));
try {
  const startMs = performance.now();
  const store = openStore({ path: join(directory, "store.db"), clock: systemClock });
  const openMs = performance.now() - startMs;
  const latencies: number[] = [];
  const endMs = performance.now() + durationMs;
  const write = async (writer: number): Promise<void> => {
    for (let count = 0; performance.now() < endMs; count += 1) {
      const key = `/registry/bench/rows/default/${writer}-${count}`;
      const sentMs = performance.now();
      await store.append({ key, value: Buffer.alloc(valueBytes, count), expectedRevision: 0 });
      latencies.push(performance.now() - sentMs);
    }
  };
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  latencies.sort((a, b) => a - b);
  const at = (share: number): string => (latencies[Math.floor(latencies.length * share)] ?? 0).toFixed(2);
  await store.close();
  const reopenMs = performance.now();
  const again = openStore({ path: join(directory, "store.db"), clock: systemClock });
  const loadMs = performance.now() - reopenMs;
  const { revision } = again;
  await again.close();
  console.log(
    JSON.stringify({
      bench: "store-append",
      writers,
      valueBytes,
      appendsPerSecond: Math.round(latencies.length / (durationMs / 1000)),
      p50Ms: at(0.5),
      p99Ms: at(0.99),
      openMs: openMs.toFixed(1),
      rowsLoaded: revision,
      loadMs: loadMs.toFixed(1),
      rssMiB: Math.round(process.memoryUsage.rss() / 1024 / 1024),
    }),
  );
} finally {
  rmSync(directory, { recursive: true });
}
