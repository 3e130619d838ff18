import type { KubeObject } from "@agent-sandbox/api";

/** One archive as the store's index tells it. */
export interface ArchiveEntry {
  readonly id: string;
  readonly namespace: string;
  readonly name: string;
  readonly sandboxUID: string;
  readonly archivedAt: string;
  readonly storedBytes: number;
  readonly contentBytes: number;
  /** The Sandbox as it is to come back: metadata that a user gave, spec. */
  readonly sandbox: KubeObject;
  readonly address: readonly string[];
}

/** What a node does for archives. Every call may be repeated after a kill and goes on from what is there. */
export interface ArchiveWork {
  /** Packs and stores a snapshot of this node (by the uid of its SandboxSnapshot); resolves when the index entry is in the store, read back. */
  store(
    entry: Omit<ArchiveEntry, "storedBytes" | "contentBytes">,
    snapshotUID: string,
    signal: AbortSignal,
  ): Promise<{ storedBytes: number; contentBytes: number }>;
  /** Brings an archive back as the files and the record of a snapshot of this node with that uid. */
  fetch(id: string, snapshotUID: string, signal: AbortSignal): Promise<ArchiveEntry>;
  /** Every archive that the store's index names. */
  list(signal: AbortSignal): Promise<readonly ArchiveEntry[]>;
  /** Removes index entry first, then parts; nothing to remove is success. */
  remove(id: string, signal: AbortSignal): Promise<void>;
}
