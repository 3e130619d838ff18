import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { type Pod, pods } from "@agent-sandbox/api";
import { expect } from "vitest";
import { isReady, type RealEngine, until } from "./real-engine.ts";

const counting = (pause: string): string => `i=0; while :; do i=$((i+1)); echo $i; sleep ${pause}; done`;

const isWhole = (counts: readonly number[]): boolean => counts.every((count, index) => count === index + 1);

/** Sandboxes that count, each in its main program and in a command beside it. They pause long enough for twenty to leave the processors to the engine. */
export class WorkingSandboxes {
  readonly #engine: RealEngine;
  readonly #names: readonly string[];

  private constructor(engine: RealEngine, names: readonly string[]) {
    this.#engine = engine;
    this.#names = names;
  }

  /** Resolves when all of them work. */
  static async start(engine: RealEngine, count: number): Promise<WorkingSandboxes> {
    const names = Array.from({ length: count }, (_, index) => `worker-${index}`);
    const made = new WorkingSandboxes(engine, names);
    await Promise.all(names.map((name) => engine.startPod(name, { command: ["sh", "-c", counting("1")] })));
    await until(async () => (await made.#pods()).filter(isReady).length === count);
    const command = `nohup sh -c '${counting("1.3")}' > /tmp/count 2>&1 < /dev/null & echo $! > /tmp/pid`;
    await Promise.all(names.map((name) => engine.sh(name, command)));
    return made;
  }

  /** Which runs there are: a restarted one has another container id or a count. */
  async runs(): Promise<string[]> {
    const all = await this.#pods();
    return all
      .map(({ metadata, status }) => {
        const [container] = status?.containerStatuses ?? [];
        return `${metadata.name} ${container?.containerID} ${container?.restartCount} ${status?.podIP}`;
      })
      .sort();
  }

  /** No command was restarted, none lost a line, and each goes on. */
  async expectUnbroken(before: readonly string[]): Promise<void> {
    await until(async () => (await this.#pods()).every(isReady));
    expect(await this.runs()).toEqual(before);
    await Promise.all(
      this.#names.map(async (name) => {
        const seen = await this.#logOf(name);
        expect(isWhole(seen), `${name} lost output`).toBe(true);
        await until(async () => (await this.#logOf(name)).length > seen.length);
      }),
    );
    await Promise.all(
      this.#names.map(async (name) => {
        const { stdout } = await this.#engine.sh(name, "kill -0 $(cat /tmp/pid) && cat /tmp/count");
        expect(isWhole(stdout.trim().split("\n").map(Number)), `the command in ${name} lost output`).toBe(true);
      }),
    );
  }

  async #pods(): Promise<Pod[]> {
    const { items } = await this.#engine.client.list(pods, { namespace: "default" });
    return items.filter(({ metadata }) => this.#names.includes(metadata.name));
  }

  async #logOf(name: string): Promise<number[]> {
    const { body, status } = await this.#engine.client.transport.request({
      method: "GET",
      path: `/api/v1/namespaces/default/pods/${name}/log`,
    });
    const log = await text(Readable.from(body));
    return status === 200 ? log.trim().split("\n").map(Number) : [];
  }
}
