import type { RunContainerRequest } from "./container.ts";
import { type FakeContainers } from "./fake-containers.ts";
import { idPattern } from "./host.ts";
import { HostError } from "./host-error.ts";
import type { ContinueSandboxRequest, CopySavedRequest, SavedState, SaveSandboxRequest } from "./saved-state.ts";

/** What saved states are made of. */
interface FakeSavedOptions {
  readonly containers: FakeContainers;
  readonly now: () => string;
  /** Throws where a container stands still by its cgroup. */
  readonly refuseFrozen: (id: string) => void;
}

/** The saved states of a FakeHost, and which of its sandboxes are paused. */
export class FakeSavedStates {
  readonly #containers: FakeContainers;
  readonly #now: () => string;
  readonly #refuseFrozen: FakeSavedOptions["refuseFrozen"];
  /** By their names. */
  readonly states = new Map<string, SavedState>();
  /** The state that a paused sandbox was saved to, by its root container. */
  readonly #paused = new Map<string, string>();
  /** What the next saves reject with. */
  saveFails: HostError | undefined;
  /** What the loading of pages ends with after the next restores. */
  restoreFails: HostError | undefined;

  constructor(options: FakeSavedOptions) {
    this.#refuseFrozen = options.refuseFrozen;
    this.#containers = options.containers;
    this.#now = options.now;
  }

  save({ id, saved, reusable }: SaveSandboxRequest): SavedState {
    assertStateId("saved", saved);
    const root = this.#running(id);
    const found = this.states.get(saved);
    if (found !== undefined) {
      if (this.isPaused(id) && this.#paused.get(id) === saved) return found;
      throw new HostError(
        "already-exists",
        `saved state ${saved} exists, and sandbox ${id} does not stand still with it`,
      );
    }
    if (root.request.runtime !== "runsc") throw new HostError("unsupported", "only runsc saves a sandbox");
    this.#refuseFrozen(id);
    if (this.saveFails !== undefined) throw this.saveFails;
    const joined = this.#containers.list().filter((each) => each.sandboxId === id && each.id !== id);
    const state: SavedState = {
      id: saved,
      takenAt: this.#now(),
      memoryBytes: 1 << 20,
      standstillMs: 1,
      runtimeVersion: "fake-1",
      ...(reusable === true ? { reusable } : {}),
      containers: [{ id, root: true }, ...joined.map((each) => ({ id: each.id, root: false }))],
    };
    this.states.set(saved, state);
    this.#paused.set(id, saved);
    return state;
  }

  continue({ id, saved }: ContinueSandboxRequest): void {
    this.#running(id);
    if (saved !== undefined) this.states.delete(saved);
    this.#markUsed(this.#paused.get(id) ?? "");
    this.#paused.delete(id);
  }

  /** Whether a sandbox stands still, by its root container. */
  isPaused(id: string): boolean {
    return this.#paused.has(id) && this.#containers.list().some((each) => each.id === id && each.status === "running");
  }

  /** Refuses what would wait for a guest that stands still. */
  assertGoing(sandboxId: string): void {
    if (this.isPaused(sandboxId)) throw new HostError("busy", `sandbox ${sandboxId} stands still`);
  }

  list(): SavedState[] {
    return [...this.states.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  copy({ from, to }: CopySavedRequest): SavedState {
    assertStateId("to", to);
    if (from === to) throw new HostError("invalid-argument", `to: ${to} is the state itself`);
    const [state, found] = [this.states.get(from), this.states.get(to)];
    if (found !== undefined) return found;
    if (state === undefined) throw new HostError("not-found", `saved state ${from} does not exist`);
    if (state.unusable !== undefined) throw new HostError("restore-refused", state.unusable);
    const copy = { ...state, id: to, reusable: true };
    this.states.set(to, copy);
    return copy;
  }

  discard(id: string): void {
    assertStateId("id", id);
    this.states.delete(id);
  }

  /** Refuses a container that the state does not have. */
  assertRestorable({ id, sandboxId, runtime, restoreFrom }: RunContainerRequest): void {
    if (restoreFrom === undefined) return;
    if (runtime !== "runsc") throw new HostError("unsupported", "restoreFrom: only runsc restores a sandbox");
    const state = this.states.get(restoreFrom.saved);
    if (state === undefined) throw new HostError("not-found", `saved state ${restoreFrom.saved} does not exist`);
    if (state.unusable !== undefined) throw new HostError("restore-refused", state.unusable);
    const container = state.containers.find((each) => each.id === restoreFrom.container);
    if (container === undefined || container.root !== (sandboxId === undefined)) {
      throw new HostError(
        "invalid-argument",
        `restoreFrom.container: ${restoreFrom.container} is no such container of it`,
      );
    }
    const source = [...this.#paused].find(([root, saved]) => saved === state.id && this.isPaused(root));
    if (source !== undefined && state.reusable !== true)
      throw new HostError("busy", `sandbox ${source[0]}, of which it was saved, is still there`);
    this.#paused.delete(id);
  }

  /** "restored" once every container of the state has been started from it. */
  restored(id: string): "restored" | undefined {
    const { restoreFrom } = this.#containers.find(id).request;
    if (restoreFrom === undefined) throw new HostError("invalid-argument", `id: ${id} was not restored`);
    if (this.restoreFails !== undefined) {
      this.#containers.find(id).process.exit(1);
      this.#markUsed(restoreFrom.saved, "a restore of it began and did not end");
      throw this.restoreFails;
    }
    this.#running(id);
    const started = this.#containers.list().filter((each) => each.sandboxId === id);
    const wanted = this.states.get(restoreFrom.saved)?.containers.length ?? started.length;
    if (started.length < wanted) return undefined;
    this.#markUsed(restoreFrom.saved);
    return "restored";
  }

  /** The files of a state whose guest has gone on are of another moment. */
  #markUsed(saved: string, unusable = `the guest of saved state ${saved} went on`): void {
    const state = this.states.get(saved);
    if (state === undefined || state.reusable === true || state.unusable !== undefined) return;
    this.states.set(saved, { ...state, unusable });
  }

  #running(id: string) {
    const found = this.#containers.find(id);
    if (found.request.sandboxId !== undefined) {
      throw new HostError("invalid-argument", `id: ${id} is not a root container`);
    }
    if (!found.process.running) throw new HostError("busy", `sandbox ${id} has ended`);
    return found;
  }
}

function assertStateId(field: string, id: string): void {
  if (!idPattern.test(id)) throw new HostError("invalid-argument", `${field}: "${id}" is not an id`);
}
