import { expect } from "vitest";
import { type EngineRole, killAll, roleProcess, roleReturned } from "../node/engine-processes.ts";
import { holdings } from "../node/holdings.ts";
import { HostDoor, type Point } from "../node/host-door.ts";
import { RealEngine, until } from "../node/real-engine.ts";

/** Roles that can be killed at a point. */
export const mortalRoles = ["node", "sandbox-host", "control", "router"] as const satisfies readonly EngineRole[];

/** Whether suites go through all of their points; `npm test -- --full` does. */
export const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";

/** A role that is killed at a point of what the node does. */
export interface Death extends Point {
  readonly role: EngineRole;
}

/** Every role before and after each of some effects. */
export function allDeaths(effects: readonly string[]): readonly Death[] {
  return effects.flatMap((effect) =>
    (["before", "after"] as const).flatMap((when) => mortalRoles.map((role) => ({ role, effect, when }))),
  );
}

/** An engine whose roles are killed at chosen verbs of its helper. */
export class MortalEngine implements AsyncDisposable {
  readonly engine: RealEngine;
  readonly door: HostDoor;
  #role: EngineRole = "node";
  #victim = 0;
  #standing = Promise.resolve();

  private constructor(engine: RealEngine) {
    this.engine = engine;
    this.door = new HostDoor(engine);
  }

  /** Opens one without sandboxes made ahead, which would add verbs of their own. */
  static async open(...upFlags: readonly string[]): Promise<MortalEngine> {
    const opened = new MortalEngine(await RealEngine.open("--sandboxes-ahead", "0", ...upFlags));
    await opened.#standInFront();
    return opened;
  }

  async #standInFront(): Promise<void> {
    await this.door.stand();
    // The agent's open connections still go past the door.
    const node = roleProcess(this.engine, "node") ?? 0;
    process.kill(node, "SIGKILL");
    await roleReturned(this.engine, "node", node);
  }

  /** Kills a role at a point of what follows. */
  arm({ role, ...point }: Death): void {
    this.#role = role;
    const strike = (): boolean => {
      this.#victim = roleProcess(this.engine, role) ?? 0;
      process.kill(this.#victim, "SIGKILL");
      if (role === "sandbox-host") this.#standing = this.door.standAgain(this.#victim);
      return role === "control" || role === "router";
    };
    this.door.arm({ ...point, strike });
  }

  /** Resolves when what was killed is back. */
  async back(): Promise<void> {
    if (this.#victim === 0) return;
    await this.#standing;
    await roleReturned(this.engine, this.#role, this.#victim);
    this.#victim = 0;
  }

  /** Asks until there is an answer: the API may be what was killed. */
  async surely<T>(request: () => Promise<T>): Promise<T> {
    let answer: { readonly value: T } | undefined;
    await until(async () => {
      await this.back();
      answer = await request().then(
        (value) => ({ value }),
        () => undefined,
      );
      return answer !== undefined;
    });
    if (answer === undefined) throw new Error("bug: no answer");
    return answer.value;
  }

  /** Takes the point back and says whether it was reached; resolves when what was killed is back. */
  async disarm(): Promise<boolean> {
    await this.door.settled();
    await this.back();
    const isReached = !this.door.isArmed;
    this.door.arm();
    return isReached;
  }

  /** Resolves when the machine has what it had, and no more. */
  async returned(held: Record<string, number>, what: string): Promise<void> {
    const differing = (): string[] =>
      Object.entries(holdings(this.engine))
        .filter(([kind, count]) => count !== held[kind])
        .map(([kind, count]) => `${count} ${kind} instead of ${held[kind]}`);
    await until(() => differing().length === 0, 30_000).catch(() => undefined);
    expect(differing().join(", "), `what the machine has after ${what}`).toBe("");
  }

  /** Starts all processes again: another supervisor has none that died so often that it is started with a delay. */
  async startAnew(): Promise<void> {
    await killAll(this.engine);
    this.engine.up();
    await this.engine.connect();
    await this.#standInFront();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.door[Symbol.asyncDispose]();
    await this.engine[Symbol.asyncDispose]();
  }
}
