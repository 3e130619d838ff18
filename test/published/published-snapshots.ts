import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type PodSnapshotPolicy, podSnapshotPolicies, sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import type { PublishedEngine } from "./published-engine.ts";
import { pythonWith } from "./published-sdk.ts";

const namespace = "default";
const labels = { app: "agent-sandbox-workload" };
const extensions = "extensions.agents.x-k8s.io/v1beta1";

/** Keeps a number in memory alone, and writes it down again wherever the file is missing or is another's. */
const keeper = String.raw`
import os, random, time
drawn = str(random.getrandbits(48))
while True:
    if not os.path.exists("/drawn") or open("/drawn").read() != drawn:
        open("/drawn.part", "w").write(drawn)
        os.rename("/drawn.part", "/drawn")
    time.sleep(0.02)
`;

/** As the documents of the extension ask the administrator for. */
const policy: PodSnapshotPolicy = {
  apiVersion: "podsnapshot.gke.io/v1",
  kind: "PodSnapshotPolicy",
  metadata: { name: "workload", namespace },
  spec: {
    storageConfigName: "any",
    selector: { matchLabels: labels },
    triggerConfig: { type: "manual", postCheckpoint: "resume" },
    snapshotGroupingRules: {
      groupByLabelValue: {
        labels: ["agents.x-k8s.io/sandbox-name-hash"],
        groupRetentionPolicy: { maxSnapshotCountPerGroup: 3 },
      },
    },
  },
};

/** Makes every call of the published snapshot extension once, the return to a snapshot as often as said; throws what it printed unless each did what it should. */
export async function driveSnapshots(
  { engine, environment, options }: PublishedEngine,
  returns: number,
): Promise<void> {
  const { client } = engine;
  await client.create(podSnapshotPolicies, policy);
  const containers = [{ name: "main", image: "host", command: ["python3", "-c", keeper] }];
  const podTemplate = { metadata: { labels }, spec: { terminationGracePeriodSeconds: 0, containers } };
  const metadata = { name: "counted", namespace };
  const template = { apiVersion: extensions, kind: "SandboxTemplate", metadata, spec: { podTemplate } } as const;
  await client.create(sandboxTemplates, template);
  const spec = { replicas: 1, sandboxTemplateRef: { name: "counted" } };
  await client.create(sandboxWarmPools, { apiVersion: extensions, kind: "SandboxWarmPool", metadata, spec });
  const script = path.join(import.meta.dirname, "snapshots.py");
  const wish = JSON.stringify({ apiUrl: options["apiUrl"], pool: "counted", returns });
  const [program, args] = engine.place.inside(pythonWith("1.0.8"), script, wish);
  const child = spawn(program, args, { env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1", ...environment } });
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0)
    throw new Error(`the calls ended with ${code}:\n${(await stderr).slice(-6000)}${(await stdout).slice(-2000)}`);
}
