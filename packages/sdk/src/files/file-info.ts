import { fromBase64 } from "../plane/base64.ts";

/** What a path names. */
export type FileType = "file" | "directory" | "symlink" | "other";

/** A file, as the sandbox describes it. */
export interface FileInfo {
  readonly name: string;
  /** Absolute path inside the sandbox; what is not UTF-8 is replaced. */
  readonly path: string;
  /** The bytes of a path that is not UTF-8; every call takes them instead. */
  readonly rawPath: Uint8Array | undefined;
  readonly type: FileType;
  readonly sizeBytes: number;
  /** Permission bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modifiedAt: Date;
  /** Where a symbolic link points. */
  readonly linkTarget: string | undefined;
  /** Changes whenever the contents may have; for `ifMatch`. */
  readonly etag: string;
}

/** The message agentsandbox.v1.FileInfo as JSON. */
export interface WireFileInfo {
  readonly name?: string;
  readonly path?: string;
  readonly rawPath?: string;
  readonly type?: string;
  readonly sizeBytes?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly modifiedAt?: string;
  readonly linkTarget?: string;
  readonly etag?: string;
}

const typeOfWire: Readonly<Record<string, FileType>> = {
  FILE_TYPE_FILE: "file",
  FILE_TYPE_DIRECTORY: "directory",
  FILE_TYPE_SYMLINK: "symlink",
};

/** Reads the wire form. */
export function fileInfoOf(wire: WireFileInfo = {}): FileInfo {
  return {
    name: wire.name ?? "",
    path: wire.path ?? "",
    rawPath: wire.rawPath === undefined || wire.rawPath === "" ? undefined : fromBase64(wire.rawPath),
    type: typeOfWire[wire.type ?? ""] ?? "other",
    sizeBytes: Number(wire.sizeBytes ?? 0),
    mode: wire.mode ?? 0,
    uid: wire.uid ?? 0,
    gid: wire.gid ?? 0,
    modifiedAt: new Date(wire.modifiedAt ?? 0),
    linkTarget: wire.linkTarget === undefined || wire.linkTarget === "" ? undefined : wire.linkTarget,
    etag: wire.etag ?? "",
  };
}

/** A change below a watched directory. */
export interface FileEvent {
  /** `overflow`: events were lost because the reader was slow; look again. */
  readonly type: "create" | "write" | "remove" | "rename" | "attributes" | "overflow";
  readonly path: string;
  /** The former path of a rename. */
  readonly oldPath: string | undefined;
  readonly isDirectory: boolean;
}

/** A line that `search` found. */
export interface SearchMatch {
  readonly path: string;
  /** Counted from 1. */
  readonly line: number;
  /** In bytes, counted from 1. */
  readonly column: number;
  /** The line without its end, cut at 4 KiB. */
  readonly text: string;
}

/** The message agentsandbox.v1.SearchResponse as JSON. */
export interface WireSearchEvent {
  readonly match?: { readonly path?: string; readonly line?: string; readonly column?: number; readonly text?: string };
}

/** Reads the wire form. */
export function searchMatchOf(wire: NonNullable<WireSearchEvent["match"]>): SearchMatch {
  return { path: wire.path ?? "", line: Number(wire.line ?? 0), column: wire.column ?? 0, text: wire.text ?? "" };
}
