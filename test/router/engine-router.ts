import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import https from "node:https";
import path from "node:path";
import { type Sandbox, sandboxes } from "@agent-sandbox/api";
import { RealEngine } from "../node/real-engine.ts";
import { type Answer, readAnswer } from "./http-call.ts";

/** The router's port inside the engine's own network namespace. */
const routerPort = 7080;

/** What an engine is started with whose router is to be asked. */
export const routerFlags = ["--router-listen", `127.0.0.1:${routerPort}`] as const;

/** A real engine and the way to its router, as its administrator. */
export class EngineRouter implements AsyncDisposable {
  readonly engine: RealEngine;
  /** Where the router answers out here. */
  readonly port: number;
  readonly #agent: https.Agent;

  private constructor(engine: RealEngine, port: number) {
    this.engine = engine;
    this.port = port;
    const { ca, cert, key } = engine.credentials;
    this.#agent = new https.Agent({ keepAlive: true, ca, cert, key, servername: "localhost" });
  }

  static async open(...upFlags: readonly string[]): Promise<EngineRouter> {
    return EngineRouter.of(await RealEngine.open(...routerFlags, ...upFlags));
  }

  /** The way to the router of an engine that was started with `routerFlags`, and whose end is its own from then on. */
  static async of(engine: RealEngine): Promise<EngineRouter> {
    const door = path.join(path.dirname(engine.kubeconfig), "router-door.sock");
    return new EngineRouter(engine, await engine.place.openDoor(routerPort, door));
  }

  get agent(): https.Agent {
    return this.#agent;
  }

  /** A sandbox of the built-in image. */
  async sandbox(name: string, spec: Partial<Sandbox["spec"]> = {}): Promise<void> {
    const containers = [{ name: "main", image: "host", command: ["sleep", "infinity"] }];
    await this.engine.client.create(sandboxes, {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: { name, namespace: "default" },
      spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers } }, ...spec },
    });
  }

  /** Resolves when the sandbox's Ready condition has this reason. */
  async reason(name: string, wanted: string): Promise<Sandbox> {
    return this.engine.objectWhere(sandboxes, { namespace: "default", name }, (found) => readyReason(found) === wanted);
  }

  /** One request to a port of a sandbox. */
  async call(
    name: string,
    target: string,
    options: { port?: number; method?: string; body?: string | Buffer; type?: string } = {},
  ): Promise<Answer> {
    const { port = 8888, method = "GET", body, type = "application/json" } = options;
    const headers = { "X-Sandbox-ID": name, "X-Sandbox-Port": String(port), "Content-Type": type };
    const request = https.request({
      host: "127.0.0.1",
      port: this.port,
      path: target,
      method,
      headers,
      agent: this.#agent,
    });
    request.end(body);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    return readAnswer(response);
  }

  /** Starts a process and does not wait for its end. */
  async startDetached(name: string, command: readonly string[]): Promise<void> {
    const message = Buffer.from(JSON.stringify({ spec: { command }, detach: true }));
    const size = Buffer.alloc(5);
    size.writeUInt32BE(message.length, 1);
    const body = Buffer.concat([size, message]);
    const target = "/agentsandbox.v1.ProcessService/Start";
    const answer = await this.call(name, target, {
      port: 49_900,
      method: "POST",
      body,
      type: "application/connect+json",
    });
    if (answer.status !== 200 || !answer.text.includes("started")) throw new Error(`${answer.status} ${answer.text}`);
  }

  /** Runs a command through the legacy runtime; resolves with what it printed. */
  async run(name: string, command: string): Promise<string> {
    const answer = await this.call(name, "/execute", { method: "POST", body: JSON.stringify({ command }) });
    if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
    const { stdout, exit_code: exitCode } = JSON.parse(answer.text) as { stdout: string; exit_code: number };
    if (exitCode !== 0) throw new Error(`${command}: ${answer.text}`);
    return stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.destroy();
    await this.engine[Symbol.asyncDispose]();
  }
}

/** The reason of the Ready condition. */
export function readyReason(sandbox: Sandbox): string | undefined {
  return sandbox.status?.conditions?.find(({ type }) => type === "Ready")?.reason;
}
