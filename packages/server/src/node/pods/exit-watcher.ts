import { type Clock, delay } from "@agent-sandbox/kube";
import type { ContainerState } from "../host/container.ts";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";

/** How long one question to the host lasts; a lost connection costs at most a new question. */
const waitMs = 300_000;

/** Pause before asking a host that is away. */
const retryMs = 500;

/** The node's view of the runtime: every container it knows, kept true by one waiting question per running container. */
export class ExitWatcher {
  readonly states = new Map<string, ContainerState>();
  readonly #host: Host;
  readonly #clock: Clock;
  readonly #onExit: (id: string) => void;
  readonly #signal: AbortSignal;
  readonly #watched = new Set<string>();
  readonly #ends = new Map<string, AbortController>();

  constructor(options: { host: Host; clock: Clock; onExit: (id: string) => void; signal: AbortSignal }) {
    this.#host = options.host;
    this.#clock = options.clock;
    this.#onExit = options.onExit;
    this.#signal = options.signal;
  }

  /** Takes over what runs already. */
  async load(): Promise<void> {
    for (const state of await this.#host.listContainers(this.#signal)) this.watch(state);
  }

  /** Notes a container and waits for its end in the background. */
  watch(state: ContainerState): void {
    this.states.set(state.id, state);
    if (state.status === "stopped" || this.#watched.has(state.id)) return;
    this.#watched.add(state.id);
    void this.#await(state.id).finally(() => this.#watched.delete(state.id));
  }

  /** Whether a container has been started; one that an agent before was starting when it was killed is asked for again, and the host answers with the same. */
  hasBegun(id: string): boolean {
    return (this.states.get(id)?.status ?? "creating") !== "creating";
  }

  forget(id: string): void {
    this.states.delete(id);
    this.#end(id);
  }

  /** Aborts when a container is over: nothing inside answers any more, and no connection to it says so by itself. */
  endOf(id: string): AbortSignal {
    if (this.states.get(id)?.status !== "running") return AbortSignal.abort();
    const end = this.#ends.get(id) ?? new AbortController();
    this.#ends.set(id, end);
    return end.signal;
  }

  #end(id: string): void {
    this.#ends.get(id)?.abort();
    this.#ends.delete(id);
  }

  async #await(id: string): Promise<void> {
    while (!this.#signal.aborted && this.states.has(id)) {
      try {
        const exit = await this.#host.waitContainer({ id, waitMs }, this.#signal);
        if (exit === undefined) continue;
        const known = this.states.get(id);
        if (known !== undefined) this.states.set(id, { ...known, status: "stopped", pid: 0, exit });
        this.#end(id);
        this.#onExit(id);
        return;
      } catch (error) {
        if (this.#signal.aborted) return;
        if (error instanceof HostError && error.code === "not-found") {
          this.forget(id);
          this.#onExit(id);
          return;
        }
        if (!(error instanceof HostError)) throw error;
        await delay(this.#clock, retryMs, this.#signal).catch(() => undefined);
      }
    }
  }
}
