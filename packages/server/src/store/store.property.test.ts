import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { openStore } from "./sqlite-store.ts";
import type { Row, Store, StoreEvent } from "./store.ts";
import { StoreError } from "./store-error.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { temporaryDirectory } from "./testing/temporary-directory.ts";

/** The store as the simplest program that could be right: a list of rows. */
class Model {
  readonly log: Row[] = [];
  compacted = 0;

  head(key: string): Row | undefined {
    const row = this.log.findLast((candidate) => candidate.key === key);
    return row?.deleted === true ? undefined : row;
  }

  at(revision: number, prefix: string): string[] {
    const newest = new Map<string, Row>();
    for (const row of this.log) if (row.revision <= revision && row.key.startsWith(prefix)) newest.set(row.key, row);
    const rows = [...newest.values()].filter(({ deleted }) => !deleted);
    return rows.map(({ key, revision: at }) => `${key}@${at}`).sort();
  }
}

type Command =
  | { readonly do: "write"; readonly key: string; readonly stale: boolean; readonly delete: boolean }
  | { readonly do: "list"; readonly back: number; readonly prefix: string; readonly limit: number }
  | { readonly do: "compact"; readonly back: number }
  | { readonly do: "watch"; readonly back: number; readonly prefix: string }
  | { readonly do: "reopen" };

const key = fc.constantFrom("/a/1", "/a/2", "/a/3", "/b/1", "/b/2");
const prefix = fc.constantFrom("/", "/a/", "/b/", "/c/", "/a/1");
const back = fc.nat({ max: 30 });
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant("write" as const), key, stale: fc.boolean(), delete: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("list" as const), back, prefix, limit: fc.integer({ min: 1, max: 4 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("compact" as const), back: fc.nat({ max: 8 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("watch" as const), back, prefix }) },
  { weight: 1, arbitrary: fc.constant({ do: "reopen" as const }) },
);

interface Watcher {
  readonly after: number;
  readonly prefix: string;
  readonly seen: StoreEvent[];
  readonly ended: Promise<unknown>;
}

class Run {
  readonly model = new Model();
  readonly #open: () => Store;
  readonly #reopens: boolean;
  #store: Store;
  #watchers: Watcher[] = [];

  constructor(open: () => Store, reopens: boolean) {
    this.#open = open;
    this.#reopens = reopens;
    this.#store = open();
  }

  async step(next: Command): Promise<void> {
    switch (next.do) {
      case "write":
        return this.#write(next);
      case "list":
        return this.#list(next);
      case "compact":
        this.model.compacted = Math.max(this.model.compacted, this.#past(next.back));
        await this.#store.compact(this.#past(next.back));
        return;
      case "watch":
        return this.#watch(next);
      case "reopen":
        if (!this.#reopens) return;
        await this.end();
        this.#store = this.#open();
        this.#list({ do: "list", back: 0, prefix: "/", limit: 2 });
        return;
      default:
        return next satisfies never;
    }
  }

  /** Lets every watcher catch up, then compares what it saw with the model. */
  async end(): Promise<void> {
    const newest = this.model.log.length;
    for (const { after, prefix: of, seen, ended } of this.#watchers) {
      const expected = this.model.log.filter((row) => row.revision > after && row.key.startsWith(of));
      await Promise.race([
        ended,
        expect.poll(() => seen.length, { interval: 1, timeout: 30_000 }).toBe(expected.length),
      ]);
      if (seen.length < expected.length) expect(await ended).toMatchObject({ code: "compacted" });
      const seenRevisions = seen.map(({ row }) => row.revision);
      const expectedRevisions = expected.map(({ revision }) => revision);
      // A watcher that compaction overtook has seen a beginning of it.
      expect(seenRevisions).toEqual(expectedRevisions.slice(0, seen.length));
      for (const { row, previous } of seen) expect(previous?.revision).toBe(this.#livePredecessor(row)?.revision);
    }
    expect(this.#store.revision).toBe(newest);
    this.#watchers = [];
    await this.#store.close();
  }

  async #write({ key: of, stale, delete: isDelete }: Extract<Command, { do: "write" }>): Promise<void> {
    const head = this.model.head(of);
    const expectedRevision = stale ? (head?.previousRevision ?? 3) : (head?.revision ?? 0);
    const current = head?.revision ?? 0;
    const written = this.#store.append({ key: of, value: Buffer.from(of), expectedRevision, delete: isDelete });
    if (expectedRevision !== current) {
      await expect(written).rejects.toMatchObject({ code: "conflict", currentRevision: current });
      return;
    }
    const row = await written;
    expect(row).toMatchObject({
      revision: this.model.log.length + 1,
      createRevision: head?.createRevision ?? row.revision,
    });
    this.model.log.push(row);
  }

  #list({ back: by, prefix: of, limit }: Extract<Command, { do: "list" }>): void {
    const atRevision = this.#past(by);
    if (atRevision < this.model.compacted) {
      expect(() => this.#store.list({ prefix: of, atRevision })).toThrow(StoreError);
      return;
    }
    const listed: string[] = [];
    for (let more = true, afterKey = ""; more; ) {
      const page = this.#store.list({ prefix: of, atRevision, limit, afterKey });
      listed.push(...page.rows.map((row) => `${row.key}@${row.revision}`));
      ({ more } = page);
      afterKey = page.rows.at(-1)?.key ?? "";
    }
    expect(listed).toEqual(this.model.at(atRevision, of));
  }

  #watch({ back: by, prefix: of }: Extract<Command, { do: "watch" }>): void {
    const after = this.#past(by);
    if (after < this.model.compacted) return;
    const seen: StoreEvent[] = [];
    const collect = async (): Promise<void> => {
      for await (const batch of this.#store.watch({ prefix: of, afterRevision: after })) seen.push(...batch);
    };
    this.#watchers.push({ after, prefix: of, seen, ended: collect().catch((error: unknown) => error) });
  }

  #past(by: number): number {
    return Math.max(0, this.model.log.length - by);
  }

  #livePredecessor(row: Row): Row | undefined {
    const found = this.model.log.findLast(({ key: of, revision }) => of === row.key && revision < row.revision);
    return found?.deleted === true ? undefined : found;
  }
}

const runs = Number(process.env["STORE_PROPERTY_RUNS"] ?? 150);

test("invariant write-is-its-event: any sequence of operations in memory behaves as a plain list of rows would, watches included", async () => {
  const property = fc.asyncProperty(fc.array(command, { maxLength: 80, size: "max" }), async (commands) => {
    const open = (): Store =>
      openStore({ path: ":memory:", clock: new ManualClock(), window: { eventsMax: 6, bytesMax: 1_000_000 } });
    const run = new Run(open, false);
    for (const next of commands) await run.step(next);
    await run.end();
  });
  await fc.assert(property, { numRuns: runs });
});

test("invariant revisions-increase: any sequence of operations on a file, reopened at will, behaves as a plain list of rows would", async () => {
  const property = fc.asyncProperty(fc.array(command, { maxLength: 60, size: "max" }), async (commands) => {
    using directory = temporaryDirectory();
    const path = join(directory.path, "store.db");
    const open = (): Store =>
      openStore({ path, clock: new ManualClock(), window: { eventsMax: 6, bytesMax: 1_000_000 } });
    const run = new Run(open, true);
    for (const next of commands) await run.step(next);
    await run.end();
  });
  await fc.assert(property, { numRuns: Math.ceil(runs / 25) });
}, 60_000);
