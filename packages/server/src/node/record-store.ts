import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { settleRecord, writeRecord } from "../durable/record-file.ts";
import type { RecordShelf } from "../durable/record-shelf.ts";

/** Characters a record may have: a pod of a hundred containers has a tenth of that. */
const recordBytesMax = 4 * 1024 * 1024;

/** What a record says besides what it is about. */
export interface Keyed {
  readonly version: 1;
  readonly uid: string;
}

/** The node's memory: one JSON file per object under `<directory>/<uid>`, written whole and in one step. */
export class RecordStore<R extends Keyed> {
  readonly #directory: string;
  readonly #records = new Map<string, R>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Reads everything an earlier agent left; what a record that cannot be read was about is rebuilt. */
  async load(shelf: RecordShelf): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o711 });
    for (const entry of await readdir(this.#directory, { withFileTypes: true })) {
      // An object has a directory; a link or a file is nothing of this agent's.
      if (!entry.isDirectory()) continue;
      const record = await shelf.read(join(this.#directory, entry.name, "record.json"), (text) => parseRecord<R>(text));
      if (record !== undefined) this.#records.set(record.uid, record);
    }
  }

  get(uid: string): R | undefined {
    return this.#records.get(uid);
  }

  all(): readonly R[] {
    return [...this.#records.values()];
  }

  /** The directory that belongs to one object: its record, and a pod's logs. */
  directoryOf(uid: string): string {
    return join(this.#directory, uid);
  }

  /** For what a returning agent may as well not know: it is on disk with the next `save`. */
  note(record: R): void {
    this.#records.set(record.uid, record);
  }

  save(record: R): Promise<void> {
    return this.#write(record, true);
  }

  /** For what an agent that is killed must find, and a machine that lost its power has lost anyway: no caller waits for the disk. */
  keep(record: R): Promise<void> {
    return this.#write(record, false);
  }

  /** Resolves when what was kept so far would outlast a loss of power. */
  settle(uid: string): Promise<void> {
    return settleRecord(join(this.directoryOf(uid), "record.json"));
  }

  async #write(record: R, isSettled: boolean): Promise<void> {
    const directory = this.directoryOf(record.uid);
    await mkdir(directory, { recursive: true, mode: 0o711 });
    await writeRecord(join(directory, "record.json"), JSON.stringify(record), { isSettled });
    this.#records.set(record.uid, record);
  }

  async remove(uid: string): Promise<void> {
    await rm(this.directoryOf(uid), { recursive: true, force: true });
    this.#records.delete(uid);
  }
}

function parseRecord<R extends Keyed>(text: string): R {
  if (text.length > recordBytesMax) throw new Error(`record is larger than ${recordBytesMax} bytes`);
  const record = JSON.parse(text) as R;
  if (record?.version !== 1) throw new Error(`record has version ${String(record?.version)}, this agent reads 1`);
  return record;
}
