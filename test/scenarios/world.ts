import { randomBytes } from "node:crypto";
import type { Engine, Sandbox, SandboxProcess } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine.ts";
import { CuttingProxy } from "./cutting-proxy.ts";
import { type Fields, text } from "./matching.ts";

/** One step: its verb and the verb's arguments. */
export type Step = Fields;

/** Carries out one step and returns what it led to. */
export type Verb = (world: World, step: Step) => Promise<Fields>;

/** A process and its output, which is read piece by piece. */
export interface FollowedProcess {
  readonly process: SandboxProcess;
  readonly stdout: AsyncIterator<Uint8Array>;
}

/** What the steps of one scenario share. */
export class World {
  readonly engine: Engine;
  readonly boxes = new Map<string, Sandbox>();
  readonly processes = new Map<string, FollowedProcess>();
  readonly kept = new Map<string, Fields>();
  readonly made: Sandbox[] = [];
  proxy: CuttingProxy | undefined;
  #proxied: Engine | undefined;

  constructor(engine: Engine) {
    this.engine = engine;
    this.kept.set("run", { "": `r${randomBytes(4).toString("hex")}` });
  }

  /** The handle that a step is about. */
  box(step: Step): Sandbox {
    return found(this.boxes, text(step, "box") || "box");
  }

  /** The process that a step is about. */
  process(step: Step): FollowedProcess {
    return found(this.processes, text(step, "process"));
  }

  /** Keeps a handle under the step's name for it. */
  keep(step: Step, box: Sandbox): Fields {
    const name = text(step, "as") || "box";
    const fields = { name: box.name, namespace: box.namespace, uid: box.uid };
    this.boxes.set(name, box);
    this.kept.set(name, fields);
    return fields;
  }

  /** Keeps a process under the step's name for it. */
  keepProcess(step: Step, process: SandboxProcess): Fields {
    const name = text(step, "as");
    this.processes.set(name, { process, stdout: process.stdout[Symbol.asyncIterator]() });
    this.kept.set(name, { id: process.id });
    return { id: process.id };
  }

  /** The engine behind a proxy that can be cut. */
  async proxiedEngine(): Promise<Engine> {
    const target = new URL(this.engine.routerUrl ?? "");
    this.proxy = new CuttingProxy(target.hostname, Number(target.port));
    this.#proxied = await connectEngine({ routerUrl: `https://127.0.0.1:${await this.proxy.start()}` });
    return this.#proxied;
  }

  /** Deletes what the scenario made. */
  async close(): Promise<void> {
    for (const { process } of this.processes.values()) process.detach();
    for (const box of this.made) await box.delete();
    this.proxy?.close();
    await this.#proxied?.close();
  }
}

function found<T>(map: ReadonlyMap<string, T>, name: string): T {
  const value = map.get(name);
  if (value === undefined) throw new Error(`the scenario has no ${name}`);
  return value;
}
