import { type FileHandle, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import type { PodRecord } from "./pod-record.ts";

/** Characters a record may have: a pod of a hundred containers has a tenth of that. */
const recordBytesMax = 4 * 1024 * 1024;

/** The node's memory: one JSON file per pod under `sandboxes/<uid>`, written whole and in one step. */
export class PodRecordStore {
  readonly #directory: string;
  readonly #records = new Map<string, PodRecord>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Reads everything an earlier agent left; a file that cannot be read is reported and left alone. */
  async load(onBroken: (path: string, error: unknown) => void): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o711 });
    for (const entry of await readdir(this.#directory)) {
      const path = join(this.#directory, entry, "record.json");
      try {
        const record = parseRecord(await readFile(path, "utf8"));
        this.#records.set(record.uid, record);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") onBroken(path, error);
      }
    }
  }

  get(uid: string): PodRecord | undefined {
    return this.#records.get(uid);
  }

  all(): readonly PodRecord[] {
    return [...this.#records.values()];
  }

  /** The directory that belongs to one pod: its record and its containers' logs. */
  directoryOf(uid: string): string {
    return join(this.#directory, uid);
  }

  /** For what a returning agent may as well not know: it is on disk with the next `save`. */
  note(record: PodRecord): void {
    this.#records.set(record.uid, record);
  }

  save(record: PodRecord): Promise<void> {
    return this.#write(record, (file) => file.sync());
  }

  /** For what an agent that is killed must find, and a machine that lost its power has lost anyway: nobody waits for the disk. */
  keep(record: PodRecord): Promise<void> {
    return this.#write(record, () => Promise.resolve());
  }

  /** Resolves when what was kept so far would outlast a loss of power. */
  async settle(uid: string): Promise<void> {
    const file = await open(join(this.directoryOf(uid), "record.json"), "r+").catch(ignoreAbsence);
    try {
      await file?.sync();
    } finally {
      await file?.close();
    }
  }

  async #write(record: PodRecord, settle: (file: FileHandle) => Promise<void>): Promise<void> {
    const directory = this.directoryOf(record.uid);
    await mkdir(directory, { recursive: true, mode: 0o711 });
    const path = join(directory, "record.json");
    const file = await open(`${path}.new`, "w", 0o600);
    try {
      await file.writeFile(JSON.stringify(record));
      await settle(file);
    } finally {
      await file.close();
    }
    await rename(`${path}.new`, path);
    this.#records.set(record.uid, record);
  }

  async remove(uid: string): Promise<void> {
    await rm(this.directoryOf(uid), { recursive: true, force: true });
    this.#records.delete(uid);
  }
}

/** A pod that is gone has nothing to outlast. */
function ignoreAbsence(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
}

function parseRecord(text: string): PodRecord {
  if (text.length > recordBytesMax) throw new Error(`record is larger than ${recordBytesMax} bytes`);
  const record = JSON.parse(text) as PodRecord;
  if (record.version !== 1) throw new Error(`record has version ${String(record.version)}, this agent reads 1`);
  return record;
}
