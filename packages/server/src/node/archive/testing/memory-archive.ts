import type { ArchiveEntry, ArchiveWork } from "../archive-work.ts";

/** Where the content of snapshots is, in tests. */
export interface SnapshotContents {
  /** Undefined where there is no complete snapshot of that uid. */
  read(snapshotUID: string): string | undefined;
  write(snapshotUID: string, content: string): void;
}

/** An archive in memory: an entry is whole or absent, as in the real one. */
export class MemoryArchive implements ArchiveWork {
  readonly #contents: SnapshotContents;
  readonly #entries = new Map<string, { readonly entry: ArchiveEntry; readonly content: string }>();
  /** Called before each piece of work; what it throws is what the store answers. */
  onCall: (call: "store" | "fetch" | "list" | "remove") => void = () => {};

  constructor(contents: SnapshotContents) {
    this.#contents = contents;
  }

  /** What is stored under an id. */
  contentOf(id: string): string | undefined {
    return this.#entries.get(id)?.content;
  }

  /** Every id that is in the index. */
  get ids(): string[] {
    return [...this.#entries.keys()];
  }

  async store(entry: Omit<ArchiveEntry, "storedBytes" | "contentBytes">, snapshotUID: string) {
    this.onCall("store");
    const content = this.#contents.read(snapshotUID);
    if (content === undefined) throw new Error(`there is no snapshot ${snapshotUID}`);
    const sizes = { storedBytes: content.length, contentBytes: 2 * content.length };
    // An entry that is there stays as it is: what it names is complete.
    if (!this.#entries.has(entry.id)) this.#entries.set(entry.id, { entry: { ...entry, ...sizes }, content });
    return sizes;
  }

  async fetch(id: string, snapshotUID: string): Promise<ArchiveEntry> {
    this.onCall("fetch");
    const found = this.#entries.get(id);
    if (found === undefined) throw new Error(`the index has no ${id}`);
    this.#contents.write(snapshotUID, found.content);
    return found.entry;
  }

  async list(): Promise<readonly ArchiveEntry[]> {
    this.onCall("list");
    return [...this.#entries.values()].map(({ entry }) => entry);
  }

  async remove(id: string): Promise<void> {
    this.onCall("remove");
    this.#entries.delete(id);
  }
}
