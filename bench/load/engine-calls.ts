import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { type Sandbox, sandboxes } from "@agent-sandbox/api";
import type { RealEngine } from "../../test/node/real-engine.ts";

/** Where a client of the bench sends its requests. */
export interface Place {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Requests of one kind; `{index}` in the path is replaced by the number of the request. */
export interface Job {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The size of a made-up body, instead of `body`. */
  readonly bytes?: number;
  /** Default 1. */
  readonly times?: number;
  /** Connections that share the work. Default 1. */
  readonly atOnce?: number;
  readonly pauseEach?: boolean;
}

/** What became of a job. */
export interface JobResult {
  readonly ms: readonly number[];
  readonly totalMs: number;
  readonly statuses: readonly number[];
  readonly bytes: number;
  /** Checksums of the last answer and of the last made-up body. */
  readonly sum: number;
  readonly sentSum: number;
}

/** A client with kept connections inside an engine's namespace. */
export interface Calls extends AsyncDisposable {
  run(job: Job): Promise<JobResult>;
}

/** Starts one. */
export function openCalls(engine: RealEngine, place: Place): Calls {
  const script = path.join(import.meta.dirname, "sandbox-calls.ts");
  const flags = ["--disable-warning=ExperimentalWarning", script, JSON.stringify(place)];
  const [program, args] = engine.place.inside(process.execPath, ...flags);
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    run: async (job) => {
      child.stdin.write(`${JSON.stringify(job)}\n`);
      const { value, done } = await lines.next();
      if (done === true) throw new Error("the client fell over");
      return JSON.parse(value) as JobResult;
    },
    [Symbol.asyncDispose]: async () => {
      child.stdin.end();
      if (child.exitCode === null) await once(child, "exit");
    },
  };
}

/** The router as its administrator reaches it, for one port of one sandbox. */
export function throughRouter(engine: RealEngine, sandbox: string, port = 49900): Place {
  const pem = (name: "ca" | "cert" | "key"): string => String(engine.credentials[name] ?? "");
  const headers = { "X-Sandbox-ID": sandbox, "X-Sandbox-Port": String(port), "Content-Type": "application/json" };
  return { url: "https://127.0.0.1:7080", headers, ca: pem("ca"), cert: pem("cert"), key: pem("key") };
}

/** Makes a sandbox of the built-in image and resolves with its address when it is Ready. */
export async function makeSandbox(
  engine: RealEngine,
  name: string,
  wish: Partial<Sandbox["spec"]> = {},
): Promise<string> {
  const containers = [
    {
      name: "main",
      image: "host",
      command: ["sleep", "infinity"],
      resources: { limits: { "ephemeral-storage": "14Gi" } },
    },
  ];
  await engine.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace: "default" },
    spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers } }, ...wish },
  });
  const isReady = ({ status }: Sandbox): boolean =>
    status?.conditions?.some((condition) => condition.type === "Ready" && condition.status === "True") ?? false;
  const found = await engine.objectWhere(sandboxes, { namespace: "default", name }, isReady);
  return found.status?.podIPs?.[0] ?? "";
}

/** Date and load, for the head of a report. */
export function circumstances(): string {
  const load = readFileSync("/proc/loadavg", "utf8").split(" ").slice(0, 3).join(" ");
  return `${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC, 2 cores, load average before the run ${load}`;
}
