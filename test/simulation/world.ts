import type { KubeObject, Pod, Resource, Sandbox, SandboxClaim } from "@agent-sandbox/api";
import { pods, sandboxClaims, sandboxes } from "@agent-sandbox/api";
import { type Client, createClient, type FakeClock, seededRandom, type Transport } from "@agent-sandbox/kube";
import { type ControllerConfig, configDefaults } from "../../packages/server/src/controllers/config.ts";
import { type ControllerSet, controllers } from "../../packages/server/src/controllers/controllers.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";
import { createMetricsRegistry, type MetricsRegistry } from "../../packages/server/src/telemetry/metrics.ts";
import { Cluster } from "./cluster.ts";
import { everybody, Ground } from "./ground.ts";
import { type Logged, loggingTransport } from "./logging-transport.ts";

/** How a world is made. */
export interface WorldOptions {
  readonly config?: Partial<ControllerConfig>;
  readonly seed?: number;
  /** Shared by many worlds in turn; default one of its own. */
  readonly ground?: Ground;
  /** Wraps the controllers' transport; called once per term. */
  readonly disturb?: (transport: Transport) => Transport;
  /** The controllers' process has died: its passes hang for ever and are not waited for. */
  readonly isDead?: () => boolean;
}

/** Real API server and controllers in one process, with a cluster's other parts played by `Cluster`. */
export class World implements AsyncDisposable {
  readonly ground: Ground;
  readonly clock: FakeClock;
  readonly client: Client;
  readonly cluster: Cluster;
  readonly registry: MetricsRegistry = createMetricsRegistry();
  readonly config: ControllerConfig;
  /** The controllers' requests that are not reads; cleared by who reads them. */
  readonly writes: Logged[] = [];
  readonly #options: WorldOptions;
  readonly #random: () => number;
  #term: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  #set: ControllerSet | undefined;

  private constructor(ground: Ground, options: WorldOptions) {
    this.ground = ground;
    this.clock = ground.clock;
    this.client = createClient(ground.api.transportFor(everybody));
    this.config = { ...configDefaults, extensions: true, freezeCaches: true, ...options.config };
    this.#options = options;
    this.#random = seededRandom(options.seed ?? 1);
    this.cluster = new Cluster(this.client, ground);
  }

  /** Opens a world with the controllers running. */
  static async open(options: WorldOptions = {}): Promise<World> {
    const ground = options.ground ?? (await Ground.open());
    await ground.clear(options.seed ?? 1);
    const world = new World(ground, options);
    world.startControllers();
    while (world.#set?.hasSynced() === false) await world.rested();
    return world;
  }

  /** Begins a term: new caches, new memory. */
  startControllers(): void {
    const { disturb = (transport: Transport) => transport } = this.#options;
    const transport = disturb(loggingTransport(this.ground.api.transportFor(everybody), this.writes));
    const { clock, registry: metrics, config } = this;
    const client = createClient(transport);
    const set = controllers({ client, clock, logger: silentLogger(), metrics, config, random: this.#random });
    this.#set = set;
    this.#term = new AbortController();
    this.#running = set.run(this.#term.signal);
  }

  /** Ends the term at once, wherever its passes are. */
  async stopControllers(): Promise<void> {
    this.#term?.abort(new Error("the term ended"));
    await this.#running;
    this.#set = undefined;
  }

  /** Whether no controller and no part of the cluster has anything to do before time moves on. */
  isIdle(): boolean {
    // Without its caches nothing is worked on, however much is queued: only time, or the server, can change that.
    if (this.#set === undefined || !this.#set.hasSynced()) return true;
    if (this.#options.isDead?.() === true) return true;
    // Nor is it by those controllers that wait for kinds which a cluster may not serve.
    const { snapshots, archives } = this.#set.caches;
    const isServed = snapshots.informer.hasSynced && archives.informer.hasSynced;
    const optional: readonly string[] = isServed ? [] : ["sandboxsnapshot", "sandboxarchive"];
    return this.#set.controllers.every(({ name, queue }) => optional.includes(name) || queue.idle);
  }

  /** Lets the controllers work until they rest, without moving time or the cluster. */
  async rested(quietTurns = 3): Promise<void> {
    await this.clock.settled({ busy: [() => !this.isIdle()], quietTurns });
  }

  /** Lets the controllers and the cluster work until both rest. */
  async settled(): Promise<void> {
    for (let round = 0; round < 100; round++) {
      await this.rested();
      if (!(await this.cluster.step())) return;
    }
    throw new Error("the world did not settle in 100 rounds");
  }

  /** Moves time on, letting everything that is due happen. */
  async advance(byMs: number): Promise<void> {
    await this.clock.advance(byMs, { busy: [() => !this.isIdle()], quietTurns: 3 });
    await this.settled();
  }

  /** Creates an object and lets the world settle. */
  async applied<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    const created = await this.client.create(resource, object);
    await this.settled();
    return created;
  }

  /** All Sandboxes. */
  async sandboxes(): Promise<Sandbox[]> {
    return this.ground.read(sandboxes);
  }

  /** All claims. */
  async claims(): Promise<SandboxClaim[]> {
    return this.ground.read(sandboxClaims);
  }

  /** All Pods. */
  async pods(): Promise<Pod[]> {
    return this.ground.read(pods);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopControllers();
    if (this.#options.ground === undefined) await this.ground[Symbol.asyncDispose]();
  }
}
