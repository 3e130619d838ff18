import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { ignore, type KubeObject, type Pod, pods, type Resource } from "@agent-sandbox/api";
import {
  type Client,
  type Credentials,
  createClient,
  httpTransport,
  loadKubeconfig,
  systemClock,
} from "@agent-sandbox/kube";
import { rootDir } from "../../scripts/checkout.ts";
import { footprint } from "./footprint.ts";
import { type Finished, TestNamespace } from "./namespace.ts";
import { type ExecResult, execInPod } from "./pod-exec.ts";

const execute = promisify(execFile);

/** The engine has its namespace to itself, so its ports are always free. */
const apiPort = 7443;

/** The one-machine engine as users start it, in namespaces and a data directory of its own. */
export class RealEngine implements AsyncDisposable {
  readonly place: TestNamespace;
  readonly dataDir: string;
  readonly instance: string;
  /** The privileged helper's part of the data directory. */
  readonly hostDir: string;
  /** The node's part of it. */
  readonly nodeDir: string;
  readonly kubeconfig: string;
  readonly #work: string;
  #upFlags: readonly string[];
  client!: Client;
  credentials!: Credentials;

  private constructor(place: TestNamespace, parent: string, upFlags: readonly string[]) {
    this.place = place;
    this.#work = mkdtempSync(path.join(parent, "as-engine-"));
    // The engine's unprivileged processes pass through here.
    chmodSync(this.#work, 0o711);
    this.dataDir = path.join(this.#work, "engine");
    this.hostDir = path.join(this.dataDir, "host");
    this.nodeDir = path.join(this.dataDir, "engine/node");
    this.instance = createHash("sha256").update(this.dataDir).digest("hex").slice(0, 6);
    this.kubeconfig = path.join(this.#work, "kubeconfig");
    this.#upFlags = upFlags;
  }

  static open(...upFlags: readonly string[]): Promise<RealEngine> {
    // Not in /tmp, which a test may give to a sandbox: no sandbox gets a directory that the engine lies in.
    return RealEngine.openIn("/var/tmp", ...upFlags);
  }

  /** Opens one whose data directory is in `parent`, for example on a disk of the test's own. */
  static async openIn(parent: string, ...upFlags: readonly string[]): Promise<RealEngine> {
    const engine = new RealEngine(await TestNamespace.open(), parent, upFlags);
    try {
      engine.up();
    } catch (error) {
      await engine.place[Symbol.asyncDispose]();
      rmSync(engine.#work, { recursive: true, force: true });
      throw error;
    }
    const port = await engine.place.openDoor(apiPort, path.join(engine.#work, "door.sock"));
    const config = readFileSync(path.join(engine.dataDir, "pki/admin.kubeconfig"), "utf8");
    writeFileSync(engine.kubeconfig, config.replaceAll(`127.0.0.1:${apiPort}`, `127.0.0.1:${port}`), { mode: 0o600 });
    await engine.connect();
    return engine;
  }

  /** Starts the engine, for the first time or again; with other flags than before if any are given. */
  up(...flags: readonly string[]): void {
    if (flags.length > 0) this.#upFlags = flags;
    try {
      this.cli("up", "--listen", `127.0.0.1:${apiPort}`, "--detach", ...this.#upFlags);
    } catch (cause) {
      const logs = ["supervisor", "control", "node", "router"].map((role) => `${role}: ${this.log(role).slice(-1500)}`);
      throw new Error(`the engine did not start\n${logs.join("\n")}`, { cause });
    }
  }

  /** Opens the client; needed again after the API server was killed under it. */
  async connect(): Promise<void> {
    await this.client?.transport.close();
    const { credentials } = await loadKubeconfig({ path: this.kubeconfig, clock: systemClock });
    this.credentials = credentials;
    this.client = createClient(httpTransport(credentials));
  }

  /** Runs a verb of the command line inside; throws unless it succeeds. */
  cli(verb: string, ...args: readonly string[]): string {
    const program = [
      process.execPath,
      "--disable-warning=ExperimentalWarning",
      path.join(rootDir, "packages/cli/src/main.ts"),
    ];
    return this.place.must(...program, verb, "--data-dir", this.dataDir, ...args);
  }

  /** The words a kubectl command line for this engine begins with. */
  kubectlArgv(): string[] {
    return [kubectlPath(), "--kubeconfig", this.kubeconfig];
  }

  /** Real kubectl, out here; throws unless it succeeds. */
  async kubectl(...args: readonly string[]): Promise<string> {
    return (await execute(kubectlPath(), ["--kubeconfig", this.kubeconfig, ...args], { timeout: 60_000 })).stdout;
  }

  /** Real kubectl with input, to its end, whatever that is. */
  async kubectlWith(input: string, ...args: readonly string[]): Promise<Finished> {
    const child = spawn(kubectlPath(), ["--kubeconfig", this.kubeconfig, ...args], { timeout: 60_000 });
    const [stdout, stderr, status] = [text(child.stdout), text(child.stderr), once(child, "close")];
    child.stdin.end(input);
    return { status: (await status)[0] as number | null, stdout: await stdout, stderr: await stderr };
  }

  /** Runs a shell script in a pod of namespace `default`. */
  sh(pod: string, script: string, options: { namespace?: string; timeoutMs?: number } = {}): Promise<ExecResult> {
    const { namespace = "default", ...rest } = options;
    return execInPod(this.credentials, { namespace, pod, command: ["sh", "-c", script], ...rest });
  }

  /** Runs a program in a pod of namespace `default`. */
  run(
    pod: string,
    command: readonly string[],
    options: { namespace?: string; timeoutMs?: number } = {},
  ): Promise<ExecResult> {
    const { namespace = "default", ...rest } = options;
    return execInPod(this.credentials, { namespace, pod, command, ...rest });
  }

  /** The range all sandboxes' addresses are from. */
  podCidr(): string {
    const text = readFileSync(path.join(this.dataDir, "network.json"), "utf8");
    return (JSON.parse(text) as { podCidr: string }).podCidr;
  }

  /** Makes a pod of one container with the built-in image; it sleeps unless told otherwise. */
  async startPod(name: string, spec: Partial<Pod> & { readonly command?: readonly string[] } = {}): Promise<Pod> {
    const { metadata, spec: podSpec, command = ["sleep", "infinity"] } = spec;
    const { containers, ...rest } = podSpec ?? { containers: undefined };
    const [container, ...others] = containers ?? [];
    const main = { name: "main", image: "host", command: [...command], ...container };
    const pod: Pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: "default", ...metadata },
      spec: { terminationGracePeriodSeconds: 1, ...rest, containers: [main, ...others] },
    };
    return this.client.create(pods, pod);
  }

  /** Resolves with the first state of a pod that satisfies the condition. */
  podWhere(name: string, condition: (pod: Pod) => boolean, namespace = "default"): Promise<Pod> {
    return this.objectWhere(pods, { namespace, name }, condition);
  }

  /** Resolves with the first state of an object that satisfies the condition. */
  async objectWhere<T extends KubeObject>(
    resource: Resource<T>,
    key: { namespace: string; name: string },
    condition: (object: T) => boolean,
  ): Promise<T> {
    const signal = AbortSignal.timeout(180_000);
    let last: T | undefined;
    while (!signal.aborted) {
      last = await this.client.get(resource, key);
      if (condition(last)) return last;
      await sleep(50);
    }
    throw new Error(`${key.name} did not get there: ${JSON.stringify(last?.["status" as keyof T])}`);
  }

  readyPod(name: string, namespace = "default"): Promise<Pod> {
    return this.podWhere(name, isReady, namespace);
  }

  /** Deletes a pod and resolves when it is gone. */
  async removePod(name: string, namespace = "default"): Promise<void> {
    await this.client.delete(pods, { namespace, name }, { gracePeriodSeconds: 0 }).catch(ignore("NotFound"));
    const signal = AbortSignal.timeout(30_000);
    while ((await this.client.get(pods, { namespace, name }).catch(ignore("NotFound"))) !== undefined) {
      signal.throwIfAborted();
      await sleep(30);
    }
  }

  /** What one of the engine's processes logged. */
  log(role: string): string {
    const file = path.join(this.dataDir, "logs", `${role}.log`);
    return existsSync(file) ? readFileSync(file, "utf8") : "";
  }

  /** What the machine has of this engine. */
  footprint(): string[] {
    return footprint(this.place, this);
  }

  /** Stops and purges the engine; throws when anything of it is left on the machine. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.client?.transport.close();
      this.cli("down", "--purge");
      const left = this.footprint();
      if (left.length > 0) throw new Error(`the engine left on the machine: ${left.join("\n")}`);
    } finally {
      await this.place[Symbol.asyncDispose]();
      rmSync(this.#work, { recursive: true, force: true });
    }
  }
}

/** Asks again until the answer is yes; throws when that takes too long. */
export async function until(question: () => boolean | Promise<boolean>, limitMs = 120_000): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!(await question())) {
    if (performance.now() > endMs) throw new Error(`not within ${limitMs} ms: ${String(question)}`);
    await sleep(100);
  }
}

/** Whether a pod's Ready condition is true. */
export function isReady(pod: Pod): boolean {
  return pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
}

/** kubectl as set-up built or unpacked it. */
export function kubectlPath(): string {
  const record = path.join(rootDir, "node_modules/.agent-sandbox/cluster.json");
  if (existsSync(record)) return (JSON.parse(readFileSync(record, "utf8")) as { kubectl: string }).kubectl;
  return process.env["AGENT_SANDBOX_TEST_KUBECTL"] ?? "kubectl";
}
