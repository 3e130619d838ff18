import { seededRandom, type Transport } from "@agent-sandbox/kube";
import { configDefaults } from "../../packages/server/src/controllers/config.ts";
import { countsEveryMs } from "../../packages/server/src/controllers/warm-pool-population/status-pace.ts";
import type { Coverage } from "./coverage.ts";
import { Faults } from "./faults.ts";
import type { Ground } from "./ground.ts";
import {
  convergenceProblems,
  hurryProblems,
  type Snapshot,
  safetyProblems,
  snapshotOf,
  transitionProblems,
} from "./invariants.ts";
import type { Logged } from "./logging-transport.ts";
import type { Mutation } from "./mutations.ts";
import { guardingMemory } from "./sleep-guard.ts";
import { SleepNode } from "./sleep-node.ts";
import { User } from "./user.ts";
import { World } from "./world.ts";

/** What one seed needs. */
export interface SimulationOptions {
  readonly seed: number;
  readonly ground: Ground;
  readonly coverage: Coverage;
  /** A planted bug, to see whether it is found. */
  readonly mutation?: Mutation;
  /** What users do half of the time. */
  readonly stress?: string;
}

/** A seed under which something that must hold did not. */
export class SimulationFailure extends Error {
  override readonly name = "SimulationFailure";
  readonly seed: number;
  /** What the controllers wrote since the world last rested. */
  readonly writes: readonly Logged[];

  constructor(seed: number, problems: readonly string[], story: readonly string[], writes: readonly Logged[]) {
    super(
      `seed ${seed}: ${problems.join("; ")}\nstory: ${story.join(", ")}\nreplay: npm run simulate -- --seed ${seed}`,
    );
    this.seed = seed;
    this.writes = [...writes];
  }
}

/**
 * Simulated time after which a world without faults must have come to rest: past every backoff, and past the readiness grace of a pool, which is looked at
 * again up to half of it later. A member that a user suspended is not Ready, and a rollout may not go below the replicas, so it waits with one member on top
 * until the grace is over and the suspended member is replaced (seed 1915).
 */
const restMs = 120_000 + 1.5 * configDefaults.readinessGraceMs;

/** Runs one seed; rejects with a `SimulationFailure`. */
export async function simulate(options: SimulationOptions): Promise<void> {
  const { seed, ground, coverage, mutation, stress = mutation?.stress } = options;
  const random = seededRandom(seed);
  const deleted = new Set<string>();
  const faults = new Faults({ random, ground, coverage, onVanish: (uid) => deleted.add(uid) });
  using _planted = mutation?.install?.();
  const losses: string[] = [];
  const disturb = (transport: Transport): Transport => {
    const guarded = guardingMemory(transport, ground, losses);
    return faults.wrap(mutation?.wrap?.(guarded, random) ?? guarded);
  };
  await using world = await World.open({
    seed,
    ground,
    disturb,
    isDead: () => faults.crashed,
    config: { claimWorkers: 4, sandboxWorkers: 4 },
  });
  const sleeper = new SleepNode(random);
  world.cluster.node.sleeper = sleeper;
  const user = new User(world, random, deleted);
  user.stress = stress;
  const run = new Run(world, user, seed, losses);
  await user.prepare();
  await world.settled();
  // A second burst begins in a world that has a past; that is worth its price once in a while.
  const bursts = random() < 0.25 ? 2 : 1;
  for (let burst = 0; burst < bursts; burst++) {
    faults.begin();
    sleeper.isCalm = false;
    const operations = 4 + Math.floor(random() * 6);
    let provoked: string | undefined;
    for (let index = 0; index < operations; index++) {
      // What was last asked for is made to happen, twice if need be: the first time may only prepare it.
      const done = await user.act(provoked);
      if (done === "claim burst" && random() < 0.5) faults.planCrash(1 + Math.floor(random() * 6));
      provoked = (await disturbed(world, faults, random)) ?? (random() < 0.7 ? provoked : undefined);
      await run.check();
    }
    faults.end();
    sleeper.isCalm = true;
    await user.repair();
    if (faults.crashed) await restart(world, faults);
    await world.advance(restMs);
    // What the cluster did last is in the counts of a pool a second later.
    await world.advance(countsEveryMs);
    await run.checkRest();
  }
}

/** Something between two operations: the cluster moves, time passes, the leader changes, or nothing. Gives what a crash waits for. */
async function disturbed(world: World, faults: Faults, random: () => number): Promise<string | undefined> {
  const roll = random();
  let provoked: string | undefined;
  if (faults.crashed || roll < 0.06) {
    await restart(world, faults);
  } else if (roll < 0.46) {
    provoked = faults.planCrash(1 + Math.floor(random() * 3));
  }
  if (roll < 0.5) await world.rested(2);
  if (roll > 0.3) await world.cluster.step();
  if (roll > 0.6) await world.clock.advance(Math.floor(random() * 3_000), { quietTurns: 2 });
  return provoked;
}

async function restart(world: World, faults: Faults): Promise<void> {
  await world.stopControllers();
  faults.forgetCrash();
  world.startControllers();
}

class Run {
  readonly #world: World;
  readonly #user: User;
  readonly #seed: number;
  #before: Snapshot | undefined;
  #written = 0;
  /** Memory that was lost, as it was noticed. */
  readonly #losses: readonly string[];

  constructor(world: World, user: User, seed: number, losses: readonly string[]) {
    this.#losses = losses;
    this.#world = world;
    this.#user = user;
    this.#seed = seed;
  }

  async check(): Promise<void> {
    const now = snapshotOf(this.#world);
    const problems = [...this.#losses, ...safetyProblems(now, this.#user.poolSizeMax)];
    if (this.#before !== undefined) problems.push(...transitionProblems(this.#before, now, this.#user));
    problems.push(...hurryProblems(this.#world.writes.slice(this.#written)));
    this.#written = this.#world.writes.length;
    this.#user.policyGivenUp = false;
    this.#before = now;
    this.#fail(problems);
  }

  async checkRest(): Promise<void> {
    await this.check();
    const now = this.#before ?? snapshotOf(this.#world);
    this.#fail(convergenceProblems(now));
    this.#world.writes.length = 0;
    this.#written = 0;
    await this.#world.advance(1_000);
    this.#fail(
      this.#world.writes.map(({ method, path, status }) => `a world at rest wrote: ${method} ${path} ${status}`),
    );
    this.#user.poolSizeMax = Math.max(2, ...now.pools.map(({ spec }) => (spec.replicas ?? 1) + 1));
  }

  #fail(problems: readonly string[]): void {
    if (problems.length === 0) return;
    const { writes } = this.#world;
    throw new SimulationFailure(this.#seed, problems, this.#user.story, writes);
  }
}
