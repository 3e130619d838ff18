import { type Clock, delay } from "@agent-sandbox/kube";
import type { NodeConfig } from "../config.ts";
import type { Host } from "../host/host.ts";
import type { SlotPool } from "../network/slot-pool.ts";
import { podCgroup, podSize } from "../pod-spec/resources.ts";
import { retryWhileHelperRestarts } from "../retry-while-helper-restarts.ts";
import type { ExitWatcher } from "./exit-watcher.ts";
import { waitingLaunch } from "./sandboxd-launch.ts";
import { pauseWritableBytes, stateDir } from "./state-dir.ts";

/** No sandbox is made while pods start or end: it would take the processor from them. */
const quietMs = 300;

/** A sandbox that runs and waits for a network, a name and a container. Its cgroup and its root file system have its id. */
export interface WaitingSandbox {
  readonly id: string;
  readonly slot: number;
  /** The directory that the daemon of its container will write to. */
  readonly stateId: string;
  /** A writable layer for its container. */
  readonly spareId: string;
  /** Processors it says it has: the one thing of a pod's size that cannot be changed after the boot. */
  readonly cpus: number;
}

/** What waiting sandboxes are made with. */
export interface WaitingSandboxesOptions {
  readonly host: Host;
  readonly slots: SlotPool;
  readonly exits: ExitWatcher;
  readonly clock: Clock;
  readonly config: Pick<NodeConfig, "sandboxesAhead" | "sandboxdPath" | "limits">;
  readonly machine: { readonly cpus: number; readonly memoryBytes: number };
  /** Unique on this machine and for ever: records may still name a sandbox that is long gone. */
  readonly newId: () => string;
  readonly onError: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/**
 * Sandboxes made ahead of need: the sentry of each has booted, in a slot and a cgroup that become a pod's own. No record names one before
 * it is taken, so that a returning agent sweeps those of an earlier one away.
 */
export class WaitingSandboxes {
  readonly #options: WaitingSandboxesOptions;
  #ready: WaitingSandbox[] = [];
  #busyMs = Number.NEGATIVE_INFINITY;
  #filling: Promise<void> | undefined;
  /** As many as the last pod asked for: the next one is most likely made from the same template. */
  #cpus: number;

  constructor(options: WaitingSandboxesOptions) {
    this.#options = options;
    this.#cpus = options.machine.cpus;
  }

  /** A sandbox with that many processors that is the caller's, with all it has; undefined when none is ready. */
  take(cpus: number): WaitingSandbox | undefined {
    const { exits } = this.#options;
    this.#cpus = cpus;
    const dead = this.#ready.filter(({ id }) => exits.states.get(id)?.status !== "running");
    for (const sandbox of dead) void this.#giveUp(sandbox);
    const alive = this.#ready.filter((sandbox) => !dead.includes(sandbox));
    const next = alive.find((sandbox) => sandbox.cpus === cpus);
    this.#ready = alive.filter((sandbox) => sandbox !== next);
    this.postpone();
    this.fill();
    return next;
  }

  /** Pods need the machine for themselves: none is made for a while. */
  postpone(): void {
    this.#busyMs = this.#options.clock.nowMs();
  }

  /** Makes what is missing, in the background and once no pod has started or ended for a while. */
  fill(): void {
    this.#filling ??= this.#makeAll().finally(() => {
      this.#filling = undefined;
    });
  }

  /** Resolves when none is being made; none is after the signal. */
  async idle(): Promise<void> {
    await this.#filling;
  }

  /** Removes those that no pod took. */
  async close(): Promise<void> {
    await this.idle();
    await Promise.all(this.#ready.splice(0).map((sandbox) => this.#giveUp(sandbox)));
  }

  async #makeAll(): Promise<void> {
    const { clock, config, signal } = this.#options;
    while (!signal.aborted) {
      const wanted = this.#ready.filter(({ cpus }) => cpus === this.#cpus);
      if (wanted.length >= config.sandboxesAhead) return;
      const waitMs = this.#busyMs + quietMs - clock.nowMs();
      if (waitMs > 0) {
        await delay(clock, waitMs, signal).catch(() => undefined);
        continue;
      }
      // Those that fit no pod of late make room for one that does.
      const others = this.#ready.filter((sandbox) => !wanted.includes(sandbox));
      this.#ready = wanted;
      await Promise.all(others.map((sandbox) => this.#giveUp(sandbox)));
      if (!(await this.#make())) return;
    }
  }

  /** False: it failed, which the next pod's own start tells better. */
  async #make(): Promise<boolean> {
    const { slots, clock, newId, onError, signal } = this.#options;
    let sandbox: WaitingSandbox | undefined;
    try {
      const id = newId();
      const slot = await retryWhileHelperRestarts(clock, () => slots.take(signal), signal);
      const made = { id, slot, stateId: `${id}-state`, spareId: `${id}-spare`, cpus: this.#cpus };
      sandbox = made;
      await retryWhileHelperRestarts(clock, () => this.#start(made), signal);
      this.#ready.push(made);
      return true;
    } catch (error) {
      if (!signal.aborted) onError(error);
      if (sandbox !== undefined) await this.#giveUp(sandbox);
      return false;
    }
  }

  async #start({ id, slot, stateId, spareId, cpus }: WaitingSandbox): Promise<void> {
    const { host, exits, config, machine, signal } = this.#options;
    const nobody = { spec: { containers: [] } };
    await Promise.all([
      host.ensureCgroup(podCgroup(nobody, { id, limits: config.limits }), signal),
      host.prepareRootfs({ id, hostUsr: true, writableBytes: pauseWritableBytes }, signal),
      host.prepareRootfs({ id: spareId, spare: true, writableBytes: config.limits.podDiskBytes }, signal),
      host.ensureEmptyDir(stateDir(stateId), signal),
    ]);
    const state = await host.runContainer(
      {
        id,
        runtime: "runsc",
        rootfs: id,
        readOnlyRootfs: true,
        ...waitingLaunch(config.sandboxdPath),
        slot,
        cgroup: id,
        size: { memoryBytes: podSize(nobody, { limits: config.limits, ...machine }).memoryBytes, cpus },
        waiting: true,
      },
      signal,
    );
    exits.watch(state);
  }

  async #giveUp(sandbox: WaitingSandbox): Promise<void> {
    const { clock, onError, signal } = this.#options;
    try {
      await retryWhileHelperRestarts(clock, () => this.#remove(sandbox), signal);
    } catch (error) {
      onError(error);
    }
  }

  async #remove({ id, slot, stateId, spareId }: WaitingSandbox): Promise<void> {
    const { host, exits, slots } = this.#options;
    await host.deleteContainer({ id });
    exits.forget(id);
    await Promise.all([
      host.releaseRootfs({ id }),
      host.releaseRootfs({ id: spareId }),
      host.removeEmptyDir({ id: stateId }),
      host.removeCgroup({ id }),
      slots.release(slot),
    ]);
  }
}
