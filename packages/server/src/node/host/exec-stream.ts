import type { Readable, Writable } from "node:stream";

/** A running exec. The caller must close it, or wait for `exit`. */
export interface ExecStream extends AsyncDisposable {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** The exit code, 128 + signal for a death by signal. Rejects with HostError if the stream was cut before the process ended. */
  readonly exit: Promise<number>;
  /** Changes the terminal's size. */
  resize(size: { readonly columns: number; readonly rows: number }): void;
  /** Kills the process if it runs, and cuts the stream. */
  close(): Promise<void>;
}
