import type { Write } from "./store.ts";
import type { StoreErrorCode } from "./store-error.ts";

/** A write as the writer takes it: the time to live has become a moment. */
export interface TimedWrite extends Omit<Write, "ttlMs"> {
  /** 0: never. */
  readonly expiresAtMs: number;
}

/** Writes that share one transaction, packed so that crossing to the writer's thread copies every value once. */
export interface Batch {
  readonly keys: readonly string[];
  readonly expectedRevisions: readonly number[];
  readonly deletes: readonly boolean[];
  readonly expiresAtMs: readonly number[];
  readonly lengths: readonly number[];
  /** The values, one after the other. */
  readonly bytes: ArrayBuffer;
}

/** What became of one write of a batch. */
export type WriteOutcome =
  | { readonly revision: number; readonly createRevision: number; readonly previousRevision: number }
  | { readonly conflictWith: number };

/** What a writer is asked to do. */
export type WriterRequest =
  | { readonly do: "append"; readonly batch: Batch }
  | { readonly do: "compact"; readonly toRevision: number }
  | { readonly do: "close" };

/** How it answers; requests are answered in order, one at a time. */
export type WriterReply =
  | { readonly kind: "appended"; readonly outcomes: readonly WriteOutcome[] }
  | { readonly kind: "compacted"; readonly revision: number }
  | { readonly kind: "closed" }
  | { readonly kind: "failed"; readonly code: StoreErrorCode; readonly message: string };

/** Packs writes; the values are copied. */
export function packBatch(writes: readonly TimedWrite[]): Batch {
  const bytes = new Uint8Array(writes.reduce((sum, { value }) => sum + value.byteLength, 0));
  let offset = 0;
  for (const { value } of writes) {
    bytes.set(value, offset);
    offset += value.byteLength;
  }
  return {
    keys: writes.map(({ key }) => key),
    expectedRevisions: writes.map(({ expectedRevision }) => expectedRevision),
    deletes: writes.map((write) => write.delete ?? false),
    expiresAtMs: writes.map(({ expiresAtMs }) => expiresAtMs),
    lengths: writes.map(({ value }) => value.byteLength),
    bytes: bytes.buffer,
  };
}

/** The writes of a batch; values are views into its bytes. */
export function* unpackBatch(batch: Batch): Generator<TimedWrite> {
  let offset = 0;
  for (const [index, key] of batch.keys.entries()) {
    const length = batch.lengths[index] ?? 0;
    yield {
      key,
      value: new Uint8Array(batch.bytes, offset, length),
      expectedRevision: batch.expectedRevisions[index] ?? 0,
      delete: batch.deletes[index] ?? false,
      expiresAtMs: batch.expiresAtMs[index] ?? 0,
    };
    offset += length;
  }
}
