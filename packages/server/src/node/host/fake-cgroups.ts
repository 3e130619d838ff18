import type { CgroupReport, CgroupStats, EnsureCgroupRequest, FrozenCgroup } from "./cgroup.ts";
import { HostError } from "./host-error.ts";

/** The cgroups of a FakeHost, and which of them stand still. */
export class FakeCgroups {
  readonly #groups = new Set<string>();
  readonly #frozen = new Set<string>();
  /** What each of them is said to take of the memory; 0 as where the machine cannot tell. */
  workingSetBytes = 0;
  /** What each of them is said to have of shared pages. */
  sharedBytes = 0;
  /** What the next freezes reject with. */
  freezeFails: HostError | undefined;
  /** What the next thaws reject with. */
  thawFails: HostError | undefined;

  ensure({ id, cpuShares, pids }: EnsureCgroupRequest): CgroupReport {
    if (cpuShares < 2 || pids < 1) throw new HostError("invalid-argument", "cpuShares: out of range");
    this.#groups.add(id);
    return { unenforced: [] };
  }

  stats(id: string): CgroupStats {
    this.#assertThere(id);
    return {
      cpuUsageUsec: 0,
      memoryBytes: this.workingSetBytes,
      workingSetBytes: this.workingSetBytes,
      pids: 0,
      oomKills: 0,
      memoryRefused: 0,
      pidsRefused: 0,
      frozen: this.isFrozen(id),
    };
  }

  freeze(id: string): FrozenCgroup {
    this.#assertThere(id);
    if (this.freezeFails !== undefined) throw this.freezeFails;
    this.#frozen.add(id);
    return { residentBeforeBytes: 2 ** 20, residentBytes: 2 ** 20, hasSwap: false };
  }

  thaw(id: string): void {
    this.#assertThere(id);
    if (this.thawFails !== undefined) throw this.thawFails;
    this.#frozen.delete(id);
  }

  /** Lets what is about to end go on, if there is such a group and it stands still. */
  letEnd(id: string): void {
    this.#frozen.delete(id);
  }

  remove(id: string): void {
    this.#groups.delete(id);
    this.#frozen.delete(id);
  }

  has(id: string): boolean {
    return this.#groups.has(id);
  }

  isFrozen(id: string): boolean {
    return this.#frozen.has(id);
  }

  ids(): Iterable<string> {
    return this.#groups;
  }

  #assertThere(id: string): void {
    if (!this.#groups.has(id)) throw new HostError("not-found", `cgroup ${id} does not exist`);
  }
}
