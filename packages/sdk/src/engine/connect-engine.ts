import { systemClock } from "@agent-sandbox/kube/clock";
import type { Credentials } from "@agent-sandbox/kube/credentials";
import { type EngineRecord } from "@agent-sandbox/kube/engine-record";
import { httpTransport } from "@agent-sandbox/kube/http-transport";
import { createClient } from "@agent-sandbox/kube/kube-client";
import { loadKubeconfig } from "@agent-sandbox/kube/kubeconfig";
import { readText } from "@agent-sandbox/kube/read-text";
import { SandboxError } from "../errors/sandbox-error.ts";
import { ClusterEngine } from "./cluster-engine.ts";
import type { Engine } from "./engine.ts";
import { chooseEngine, dataDirDefault, type EngineOptions, type EngineSource } from "./engine-options.ts";
import { readEngineRecord } from "./engine-record.ts";

const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Finds the engine that is meant and connects to it; `engine-not-found` says how to start one. */
export async function connectEngine(options: EngineOptions = {}): Promise<Engine> {
  const { env } = process;
  // Not imported: an import reads every property of a module, and loads what stands behind those of `fs`.
  const { existsSync } = process.getBuiltinModule("node:fs");
  const { homedir } = process.getBuiltinModule("node:os");
  const hasServiceAccount = existsSync(`${serviceAccountDir}/token`);
  const source = chooseEngine({ options, env, hasServiceAccount, homeDir: homedir() });
  const { credentials, namespace, record } = await openSource(source);
  const known = record ?? (await recordOfServer(credentials.server, env["AGENT_SANDBOX_DATA_DIR"] ?? dataDirDefault));
  const routerUrl = options.routerUrl ?? (env["AGENT_SANDBOX_ROUTER_URL"] || known?.routerUrl);
  return new ClusterEngine({
    kind: known === undefined ? "cluster" : "local",
    isInCluster: source.kind === "in-cluster",
    credentials,
    client: createClient(httpTransport(credentials, { protocol: known === undefined ? "auto" : "http1" }), {
      userAgent: "agent-sandbox-sdk",
    }),
    namespace: options.namespace ?? (env["AGENT_SANDBOX_NAMESPACE"] || namespace || "default"),
    routerUrl,
    ...(options.routerCa !== undefined && { routerCa: readText(options.routerCa) }),
  });
}

interface OpenedSource {
  readonly credentials: Credentials;
  readonly namespace?: string | undefined;
  readonly record?: EngineRecord;
}

async function openSource(source: EngineSource): Promise<OpenedSource> {
  const clock = systemClock;
  switch (source.kind) {
    case "kubeconfig":
      return openKubeconfig(source.path, source.context);
    case "in-cluster": {
      const { loadInClusterCredentials } = await import("@agent-sandbox/kube/in-cluster");
      const credentials = await loadInClusterCredentials({ host: source.host, port: source.port, clock });
      return { credentials, namespace: tryReadText(`${serviceAccountDir}/namespace`) };
    }
    case "local": {
      const record = await readEngineRecord(source.dataDir);
      if (record === undefined) throw noEngine(source.dataDir);
      return { ...(await openKubeconfig(record.kubeconfig)), record };
    }
    default:
      return source satisfies never;
  }
}

async function openKubeconfig(path: string, context?: string): Promise<OpenedSource> {
  try {
    return await loadKubeconfig({ path, clock: systemClock, ...(context !== undefined && { context }) });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const text = cause instanceof Error ? cause.message : String(cause);
    if (code === "EACCES") {
      const advice = "run as root, or let root copy one for you: install -o USER -m 600";
      throw new SandboxError("permission-denied", `cannot read ${path}; ${advice} ${path} FILE`, { cause });
    }
    throw new SandboxError("engine-not-found", code === "ENOENT" ? `there is no kubeconfig ${path}` : text, { cause });
  }
}

/** A kubeconfig may name the engine of this very machine; then its router is known as well. */
async function recordOfServer(server: string, dataDir: string): Promise<EngineRecord | undefined> {
  const record = await readEngineRecord(dataDir).catch(() => undefined);
  return record?.apiUrl === server ? record : undefined;
}

function noEngine(dataDir: string): SandboxError {
  const option = dataDir === dataDirDefault ? "" : ` --data-dir ${dataDir}`;
  return new SandboxError(
    "engine-not-found",
    `no engine runs on ${dataDir}; start one with: agent-sandbox up --detach${option}`,
  );
}

function tryReadText(path: string): string | undefined {
  try {
    return readText(path);
  } catch {
    return undefined;
  }
}
