import {
  annotationKeys,
  archiveState,
  findCondition,
  ignore,
  type Pod,
  pods,
  type Sandbox,
  type SandboxArchive,
  sandboxArchives,
  sandboxes,
} from "@agent-sandbox/api";
import type { RealEngine } from "../node/real-engine.ts";
import { until } from "../node/real-engine.ts";

/** How deep a sandbox of these suites sleeps. */
export type DeepRung = "Freeze" | "Hibernate";

/** Both of them. */
export const deepRungs: readonly DeepRung[] = ["Freeze", "Hibernate"];

/** A Sandbox of an engine that is put to sleep and woken. */
export class Box {
  readonly engine: RealEngine;
  readonly name: string;
  readonly rung: DeepRung;

  constructor(engine: RealEngine, name: string, rung: DeepRung) {
    this.engine = engine;
    this.name = name;
    this.rung = rung;
  }

  get #key(): { readonly namespace: string; readonly name: string } {
    return { namespace: "default", name: this.name };
  }

  /** Makes it and resolves when it is ready. */
  async start(template: Sandbox["spec"]["podTemplate"]["spec"], spec: Partial<Sandbox["spec"]> = {}): Promise<void> {
    await this.engine.client.create(sandboxes, {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: this.#key,
      spec: {
        suspensionStrategy: { type: this.rung },
        podTemplate: { spec: { terminationGracePeriodSeconds: 1, ...template } },
        ...spec,
      },
    });
    await this.ready();
  }

  /** The object. */
  object(): Promise<Sandbox> {
    return this.engine.client.get(sandboxes, this.#key);
  }

  /** The pod; undefined while there is none. */
  pod(): Promise<Pod | undefined> {
    return this.engine.client.get(pods, this.#key).catch(ignore("NotFound"));
  }

  /** Resolves when it is ready. */
  async ready(): Promise<void> {
    await until(async () => (await this.condition("Ready")) === "True", 60_000);
  }

  /** The status of a condition; undefined where the API does not answer. */
  async condition(type: string): Promise<string | undefined> {
    const object = await this.object().catch(() => undefined);
    return findCondition(object?.status?.conditions, type)?.status;
  }

  /** Asks for sleep, as `agent-sandbox suspend` does: traffic wakes it. */
  async beginSleep(): Promise<void> {
    const metadata = { annotations: { [annotationKeys.suspendedAt]: null } };
    const spec = { operatingMode: "Suspended", wakePolicy: "OnTraffic" };
    await this.engine.client.patch(sandboxes, this.#key, { type: "merge", body: { metadata, spec } });
  }

  /** Asks for it to run, as `agent-sandbox resume` does. */
  async beginWake(): Promise<void> {
    const body = { spec: { operatingMode: "Running" } };
    await this.engine.client.patch(sandboxes, this.#key, { type: "merge", body });
  }

  /** Resolves when it sleeps as deeply as it is to: a frozen one has its pod, a hibernated one has none. */
  async asleep(): Promise<void> {
    await until(async () => (await this.condition("Suspended")) === "True", 60_000);
    if (this.rung === "Hibernate") await until(async () => (await this.pod()) === undefined, 60_000);
  }

  /** Puts it to sleep and resolves when it is. */
  async sleep(): Promise<void> {
    await this.beginSleep();
    await this.asleep();
  }

  /** Wakes it and resolves when it is ready. */
  async wake(): Promise<void> {
    await this.beginWake();
    await this.ready();
  }

  /** Whether there is a Sandbox of its name. */
  async isThere(): Promise<boolean> {
    return (await this.object().catch(ignore("NotFound"))) !== undefined;
  }

  /** Asks for it to leave the machine; an archive that is there already was asked for by a request whose answer was lost. */
  async beginArchive(): Promise<void> {
    const object = {
      apiVersion: "agent-sandbox.dev/v1alpha1",
      kind: "SandboxArchive",
      metadata: this.#key,
      spec: {},
    };
    await this.engine.client.create(sandboxArchives, object as SandboxArchive).catch(ignore("AlreadyExists"));
  }

  /** Its archive; undefined where there is none. */
  archive(): Promise<SandboxArchive | undefined> {
    return this.engine.client.get(sandboxArchives, this.#key).catch(ignore("NotFound"));
  }

  /** Resolves when it has left. */
  async archived(): Promise<void> {
    await until(async () => {
      const archive = await this.archive();
      return archive !== undefined && archiveState(archive).reason === "Archived";
    }, 60_000);
  }

  /** Lets it leave and resolves when it has; it sleeps already. */
  async leave(): Promise<void> {
    await this.beginArchive();
    await this.archived();
  }

  /** Asks for it to come back, as `agent-sandbox unarchive` does. */
  async recall(): Promise<void> {
    const body = { spec: { recall: true } };
    await this.engine.client.patch(sandboxArchives, this.#key, { type: "merge", body });
  }

  /** Runs a script inside, which wakes it; throws unless it succeeds. */
  async sh(script: string): Promise<string> {
    const { exitCode, stdout, stderr } = await this.engine.sh(this.name, script, { timeoutMs: 60_000 });
    if (exitCode !== 0) throw new Error(`${this.name}: ${script} ended with ${exitCode}: ${stderr}${stdout}`);
    return stdout;
  }

  /** Deletes it. */
  async remove(): Promise<void> {
    await this.engine.client.delete(sandboxes, this.#key).catch(ignore("NotFound"));
    await until(async () => (await this.pod()) === undefined, 60_000);
  }
}
