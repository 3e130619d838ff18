/** What an object must have to be the one that was meant. */
export interface StoredContent {
  readonly sizeBytes: number;
  /** In hexadecimal digits. */
  readonly sha256: string;
}

/**
 * Where archives lie. An object is there as a whole or not at all. Every call may be repeated; all reject with ArchiveError, `unavailable` where another try may succeed. Names are
 * those of `index/` and `parts/`: lower case letters, digits, `-`, `.` and `/`.
 */
export interface ArchiveStore {
  /** Whether an object is there with that content. */
  has(name: string, content: StoredContent, signal: AbortSignal): Promise<boolean>;
  /** Stores a file. Resolves when the store has told size and digest of what it has. */
  putFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void>;
  /** Writes an object to a file, which has the content once this has resolved. */
  getFile(name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void>;
  putText(name: string, text: string, signal: AbortSignal): Promise<void>;
  /** Undefined where there is none. */
  getText(name: string, signal: AbortSignal): Promise<string | undefined>;
  /** The names that begin so, in order. */
  list(prefix: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Nothing to remove is success. */
  remove(name: string, signal: AbortSignal): Promise<void>;
}

/** An entry has a Sandbox and the list of its parts in it; the API bounds the former, and ten thousand parts are two mebibytes. */
export const textBytesMax = 16 << 20;
