import { createClient, FakeClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { silentLogger } from "../telemetry/logger.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { standins } from "./standins.ts";

test("standins: each has the metrics of a controller: depth, waits, retries and passes", async () => {
  const metrics = createMetricsRegistry();
  const never = () => new Promise<never>(() => undefined);
  const { all } = standins({
    client: createClient({ request: never, upgrade: never, close: async () => undefined }),
    clock: new FakeClock(),
    logger: silentLogger(),
    metrics,
    caBundlePem: "",
    router: { systemNamespace: "system", address: "10.0.0.1" },
    quotaUsed: () => ({}),
  });
  for (const { queue } of all) {
    queue.add("a");
    queue.add("b");
    queue.retry(await queue.take(new AbortController().signal));
  }
  const text = await metrics.metrics();
  const names = all.map(({ name }) => name);
  expect(names).toHaveLength(12);
  for (const name of names) {
    const labels = `{name="${name}",controller="${name}"}`;
    expect(text).toContain(`workqueue_depth${labels} 1\n`);
    expect(text).toContain(`workqueue_adds_total${labels} 2\n`);
    expect(text).toContain(`workqueue_retries_total${labels} 1\n`);
    expect(text).toContain(`workqueue_queue_duration_seconds_count${labels} 1\n`);
    expect(text).toContain(`controller_runtime_max_concurrent_reconciles{controller="${name}"} `);
  }
});
