import type { ImageKind } from "./image-clone.ts";

/** One thing of a snapshot: its saved memory, or an image that is mounted nowhere. */
export interface ArchiveFile {
  readonly kind: "saved" | ImageKind;
  readonly id: string;
}

/** A part of an archive to be packed; or, without `to`, to be looked up. */
export interface PackArchiveRequest {
  readonly id: string;
  /** In an order that stays the same for the archive, here and where it is unpacked. */
  readonly files: readonly ArchiveFile[];
  readonly part: number;
  /** A path below the node's directory. */
  readonly to?: string;
}

/** One part as it leaves: compressed and encrypted. */
export interface ArchivePart {
  readonly sizeBytes: number;
  readonly sha256: string;
  /** What it has of the files, without their holes. */
  readonly contentBytes: number;
  readonly chunks: number;
  readonly last?: boolean;
}

/** An archive's entry as it lies in a store. */
export interface SealedArchive {
  readonly id: string;
  readonly sealed: string;
}

/** What an entry has inside. */
export interface OpenedArchive {
  /** What `sealArchive` was given. */
  readonly entry: unknown;
  readonly parts: readonly ArchivePart[];
}

/** The next part of an archive to be unpacked; or, without `from`, the question which one is next. */
export interface UnpackArchiveRequest extends SealedArchive {
  /** What the files are called here; kinds and order are those that were packed. */
  readonly files: readonly ArchiveFile[];
  readonly part: number;
  /** A path below the node's directory. */
  readonly from?: string;
}

/** How far an archive is unpacked. */
export interface UnpackedArchive {
  /** The part that is next. */
  readonly part: number;
  /** All files are in their places. */
  readonly done?: boolean;
}
