import { describe, expect, test } from "vitest";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { openControllerMetrics } from "./controller-metrics.ts";
import { setBuildInfo } from "./process/build-info.ts";
import { collectSandboxes, sandboxLabels } from "./sandbox-gauge.ts";
import { aCondition, aSandbox, ownedBy, ownedByExtension } from "./testing/builders.ts";

type Parts = Parameters<typeof aSandbox>[0];
const plain = {
  namespace: "default",
  ready_condition: "false",
  expired: "false",
  launch_type: "cold",
  sandbox_template: "unknown",
  owned_by: "None",
  created_by: "unknown",
};
const labelled = (key: string, value: string): Parts => ({
  metadata: { labels: { [`agents.x-k8s.io/${key}`]: value } },
});
const owned = (reference: ReturnType<typeof ownedBy>): Parts => ({ metadata: { ownerReferences: [reference] } });

describe("agent_sandboxes", () => {
  const rows: [string, Parts, Partial<typeof plain>][] = [
    ["nothing known", {}, {}],
    ["Ready", { status: { conditions: [aCondition("Ready", "True")] } }, { ready_condition: "true" }],
    ["not Ready", { status: { conditions: [aCondition("Ready", "Unknown")] } }, {}],
    [
      "expired",
      { status: { conditions: [aCondition("Ready", "False", { reason: "SandboxExpired" })] } },
      { expired: "true" },
    ],
    ["warm by its label", labelled("launch-type", "warm"), { launch_type: "warm" }],
    ["a label that says something else", labelled("launch-type", "hot"), {}],
    ["no warmth by the pod-name annotation", { metadata: { annotations: { "agents.x-k8s.io/pod-name": "p" } } }, {}],
    [
      "its template",
      { metadata: { annotations: { "agents.x-k8s.io/sandbox-template-ref": "tpl" } } },
      { sandbox_template: "tpl" },
    ],
    ["a claim's", owned(ownedByExtension("SandboxClaim", "c")), { owned_by: "SandboxClaim" }],
    ["a pool's", owned(ownedByExtension("SandboxWarmPool", "p")), { owned_by: "SandboxWarmPool" }],
    [
      "a claim's of the older version",
      owned(ownedBy("SandboxClaim", "c", "u", "extensions.agents.x-k8s.io/v1alpha1")),
      { owned_by: "SandboxClaim" },
    ],
    ["a claim's of another group", owned(ownedBy("SandboxClaim", "c", "u", "other.io/v1")), {}],
    ["made by a known client", labelled("created-by", "go-client"), { created_by: "go-client" }],
    ["made by a name nobody vouches for", labelled("created-by", "attacker"), {}],
  ];
  test.each(rows)("sandboxLabels: K7 %s", (_title, parts, expected) => {
    expect(sandboxLabels(aSandbox(parts))).toEqual({ ...plain, ...expected });
  });

  test("agent_sandboxes: K7 one series per combination, counted anew at each scrape", async () => {
    const registry = createMetricsRegistry();
    let list = [
      aSandbox({ name: "a" }),
      aSandbox({ name: "b" }),
      aSandbox({ name: "c", ...labelled("launch-type", "warm") }),
    ];
    collectSandboxes(registry, () => list);
    const series = async () =>
      (await registry.metrics()).split("\n").filter((line) => line.startsWith("agent_sandboxes{"));
    expect((await series()).map((line) => Number(line.split(" ").at(-1))).sort((a, b) => a - b)).toEqual([1, 2]);
    list = [];
    expect(await series()).toEqual([]);
  });
});

test("collectSandboxes: what each Sandbox costs, with its rung", async () => {
  const registry = createMetricsRegistry();
  const conditions = [
    aCondition("Ready", "False", { reason: "SandboxSuspended" }),
    aCondition("Suspended", "True", { reason: "PodHibernated" }),
  ];
  const memory = { residentBytes: 0, beforeSleepBytes: 60 };
  const sleep = { id: "1", rung: "Hibernate", savedBytes: 44 } as const;
  const list = [
    aSandbox({ name: "awake", status: { memory: { residentBytes: 50, sharedBytes: 5 } } }),
    aSandbox({ name: "asleep", status: { conditions, memory, sleep } }),
    aSandbox({ name: "unknown" }),
  ];
  collectSandboxes(registry, () => list);
  const text = await registry.metrics();
  const labels = (sandbox: string, rung: string) =>
    `{namespace="${list[0]?.metadata.namespace ?? ""}",sandbox="${sandbox}",rung="${rung}"}`;
  const series = text
    .split("\n")
    .filter((line) => /^agent_sandbox_(memory_|asleep_)/.test(line) && !line.includes("asleep_since"));
  expect(series.toSorted()).toEqual(
    [
      `agent_sandbox_memory_resident_bytes${labels("awake", "starting")} 50`,
      `agent_sandbox_memory_shared_bytes${labels("awake", "starting")} 5`,
      `agent_sandbox_memory_resident_bytes${labels("asleep", "hibernated")} 0`,
      `agent_sandbox_memory_saved_bytes${labels("asleep", "hibernated")} 44`,
      `agent_sandbox_memory_freed_bytes${labels("asleep", "hibernated")} 60`,
    ].toSorted(),
  );
  expect(text).toContain(`agent_sandbox_asleep_since_seconds${labels("asleep", "hibernated")} `);
});

describe("names and labels", () => {
  const startup = [100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000];
  const creation = [50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000];
  const claim = { launch_type: "warm", sandbox_template: "tpl" };
  test.each([
    ["agent_sandbox_claim_startup_latency_ms", "claimStartup", claim, startup],
    ["agent_sandbox_claim_controller_startup_latency_ms", "claimControllerStartup", claim, startup],
    ["agent_sandbox_client_claim_startup_latency_ms", "claimClientStartup", claim, startup],
    ["agent_sandbox_creation_latency_ms", "creationLatency", { namespace: "n", ...claim }, creation],
  ] as const)(
    "openControllerMetrics: K7 %s has the reference's labels and buckets",
    async (name, metric, labels, buckets) => {
      const registry = createMetricsRegistry();
      openControllerMetrics(registry)[metric].observe(labels as never, 120);
      const text = await registry.metrics();
      const les = [...text.matchAll(new RegExp(`^${name}_bucket\\{le="([0-9]+)"`, "gm"))].map(([, le]) => Number(le));
      expect(les).toEqual(buckets);
      for (const label of Object.keys(labels)) expect(text).toContain(`${label}="`);
      expect(text).toMatch(new RegExp(`^${name}_sum\\{[^}]*\\} 120$`, "m"));
    },
  );

  test("openControllerMetrics: K7 claims are counted by six labels", async () => {
    const registry = createMetricsRegistry();
    const labels = {
      namespace: "n",
      sandbox_template: "t",
      launch_type: "cold",
      warmpool_name: "p",
      pod_condition: "not_ready",
      created_by: "unknown",
    };
    openControllerMetrics(registry).claimCreations.inc(labels);
    expect(await registry.metrics()).toContain(
      'agent_sandbox_claim_creation_total{namespace="n",sandbox_template="t",launch_type="cold",warmpool_name="p",pod_condition="not_ready",created_by="unknown"} 1',
    );
  });

  test("setBuildInfo: K7 a constant with every label", async () => {
    const registry = createMetricsRegistry();
    setBuildInfo(registry, { version: "v1" });
    expect(await registry.metrics()).toMatch(
      /agent_sandbox_build_info\{git_version="v1",git_commit="unknown",build_date="unknown",go_version="node-[^"]+",compiler="v8",platform="[^"]+"\} 1/,
    );
  });
});
