import { chmodSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";

/** A directory that an engine is given as its archive. */
export class ArchiveDirectory implements Disposable {
  readonly #parent: string;

  constructor() {
    this.#parent = mkdtempSync("/var/tmp/as-archive-");
    // The engine's unprivileged processes pass through here.
    chmodSync(this.#parent, 0o711);
  }

  /** What `up` is given; the engine makes it. */
  get path(): string {
    return path.join(this.#parent, "content");
  }

  /** Files that are there, parts that are being written included. */
  files(): string[] {
    return readdirSync(this.path, { recursive: true, withFileTypes: true }).flatMap((entry) =>
      entry.isFile() ? [entry.name] : [],
    );
  }

  [Symbol.dispose](): void {
    rmSync(this.#parent, { recursive: true, force: true });
  }
}
