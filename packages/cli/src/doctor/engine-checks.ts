import { findCondition } from "@agent-sandbox/api/condition";
import { nodes } from "@agent-sandbox/api/resource";
import type { Engine, Sandbox } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine";
import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import type { Look } from "@agent-sandbox/server/main/preflight/look";
import { startEngineProcess } from "../start-engine.ts";
import { implicitFlags } from "../up-flags.ts";
import type { Check, Question } from "./check.ts";

/** A start that takes longer than this is reported, not waited for. */
const bootTimeoutMs = 60_000;

/** What a running engine must be able to do; a sandbox is booted for real. */
export const engineChecks: readonly Check[] = [
  {
    title: "engine",
    look: async ({ dataDir }) => {
      const record = await readEngineRecord(dataDir);
      if (record === undefined)
        return {
          verdict: "broken",
          code: "no-engine",
          detail: "not running",
          advice: "start it: agent-sandbox up --detach",
        };
      return { verdict: "ok", detail: `version ${record.version}, API ${record.apiUrl}` };
    },
    mend: async ({ dataDir }) => void (await startEngineProcess(dataDir, implicitFlags(dataDir))),
  },
  {
    title: "node",
    look: async (question) => {
      const { client } = await engineOf(question);
      const [node] = (await client.list(nodes)).items;
      const ready = findCondition(node?.status?.conditions, "Ready");
      if (ready?.status !== "True")
        return { verdict: "broken", detail: ready?.message ?? "the node has not reported yet" };
      return { verdict: "ok", detail: `${node?.metadata.name ?? ""} is Ready` };
    },
  },
  { title: "runsc versions in use", look: ({ dataDir }) => lookAtRuntimeVersions(dataDir) },
  { title: "sandbox on gVisor", look: (question) => boot(question, "gvisor") },
  {
    title: "sandbox on runc",
    look: async (question) => {
      const look = await boot(question, "runc").catch((error: unknown): Look => {
        return { verdict: "warning", detail: error instanceof Error ? error.message : String(error) };
      });
      // The operator decides about the trusted tier, and most say no.
      return look.verdict === "ok"
        ? look
        : { ...look, verdict: "warning", advice: "It is optional: agent-sandbox up --allow-runc" };
    },
  },
];

async function lookAtRuntimeVersions(dataDir: string): Promise<Look> {
  const { runtimeVersionsInUse } = await import("@agent-sandbox/server/main/runtime-versions");
  const uses = await runtimeVersionsInUse(dataDir);
  const detail = uses
    .map(({ version, current, sandboxes }) => `${version || "unknown"}${current ? " (current)" : ""}: ${sandboxes}`)
    .join(", ");
  return uses.every(({ installed }) => installed)
    ? { verdict: "ok", detail: `sandboxes by version: ${detail}` }
    : {
        verdict: "broken",
        detail: `sandboxes by version: ${detail}; not all of them are installed`,
        advice: "Suspend and resume, or delete, the sandboxes whose condition RuntimeVersion is False.",
      };
}

async function engineOf({ dataDir }: Question): Promise<Engine> {
  return connectEngine({ dataDir });
}

async function boot(question: Question, runtime: string): Promise<Look> {
  const { Sandbox } = await import("@agent-sandbox/sdk/sandbox");
  const engine = await engineOf(question);
  const startedMs = performance.now();
  await using sandbox = await Sandbox.create({
    engine,
    runtime,
    readyTimeoutMs: bootTimeoutMs,
    signal: question.context.signal,
  });
  const { stdout } = await sandbox.run(["uname", "-a"], { check: true });
  const bootMs = Math.round(performance.now() - startedMs);
  const problems = (await Promise.all([files(sandbox), names(sandbox), isolation(sandbox)])).filter(
    (text) => text !== undefined,
  );
  const detail = `first command after ${bootMs} ms; ${stdout.trim().split(" ").slice(0, 3).join(" ")}`;
  return problems.length === 0
    ? { verdict: "ok", detail: `${detail}; files, names and isolation work` }
    : { verdict: "broken", detail: `${detail}; ${problems.join("; ")}` };
}

async function files(sandbox: Sandbox): Promise<string | undefined> {
  await sandbox.files.write("/tmp/doctor", "written");
  return (await sandbox.files.readText("/tmp/doctor")) === "written"
    ? undefined
    : "a file did not come back as it was written";
}

/** Every sandbox knows its own name. */
async function names(sandbox: Sandbox): Promise<string | undefined> {
  const host = `${sandbox.name}.${sandbox.namespace}.svc.cluster.local`;
  const { exitCode } = await sandbox.run(["getent", "hosts", host], { commandTimeoutMs: 10_000 });
  return exitCode === 0 ? undefined : `the name ${host} is not resolved`;
}

/** The host's loopback services must not answer from inside. */
async function isolation(sandbox: Sandbox): Promise<string | undefined> {
  const { stdout } = await sandbox.run(
    "cat /proc/net/route 2>/dev/null | head -3; test -e /var/lib/agent-sandbox && echo leak",
  );
  return stdout.includes("leak") ? "the host's data directory is visible inside" : undefined;
}
