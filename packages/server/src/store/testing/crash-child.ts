/**
 * A process made to be killed: writes, watches and compacts a store, and reports into a file, one JSON line each, what
 * was acknowledged to it. What was written to a file outlives the process; a pipe might be full. The first line on standard output
 * says that it is under way.
 */
import { openSync, writeSync } from "node:fs";
import { openStore } from "../sqlite-store.ts";
import { ManualClock } from "./manual-clock.ts";

/** What the process is started with, as JSON. */
export interface CrashOptions {
  readonly path: string;
  readonly reportPath: string;
  readonly seed: number;
  readonly failpoint?: NonNullable<Parameters<typeof openStore>[0]["failpoint"]>;
}

/** What it reports. */
export type CrashReport =
  | { readonly kind: "acknowledged"; readonly key: string; readonly revision: number; readonly deleted: boolean }
  | { readonly kind: "seen"; readonly revision: number; readonly key: string };

const options = JSON.parse(process.argv[2] ?? "{}") as CrashOptions;
const { path, failpoint } = options;
const store = openStore({ path, clock: new ManualClock(), ...(failpoint !== undefined && { failpoint }) });
const reportFile = openSync(options.reportPath, "a");
const report = (line: CrashReport): void => void writeSync(reportFile, `${JSON.stringify(line)}\n`);

async function write(writer: number): Promise<never> {
  for (let count = 0; ; count += 1) {
    const key = `/registry/test/rows/${writer}/${(count * 7 + options.seed) % 5}`;
    const current = store.get(key);
    const isDelete = current !== undefined && count % 4 === 3;
    const row = await store.append({
      key,
      value: Buffer.from(`${options.seed}/${writer}/${count}`),
      expectedRevision: current?.revision ?? 0,
      delete: isDelete,
    });
    report({ kind: "acknowledged", key, revision: row.revision, deleted: isDelete });
  }
}

async function watch(): Promise<void> {
  for await (const batch of store.watch({ prefix: "/registry/test/" })) {
    for (const { row } of batch) report({ kind: "seen", revision: row.revision, key: row.key });
  }
}

async function beat(): Promise<void> {
  const key = "/registry/pace/maker";
  await store.append({ key, value: Buffer.of(), expectedRevision: store.get(key)?.revision ?? 0 });
}

async function compact(): Promise<never> {
  for (;;) {
    await beat();
    await store.compact(Math.max(0, store.revision - 200));
  }
}

await beat();
writeSync(1, "under way\n");
await Promise.all([watch(), compact(), ...Array.from({ length: 4 }, (_, writer) => write(writer))]);
