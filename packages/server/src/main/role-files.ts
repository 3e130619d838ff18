import { spawn } from "node:child_process";
import { BackupError } from "../backup/backup-error.ts";
import { ByteSource } from "../backup/byte-source.ts";
import { entryFile } from "../installation/installation.ts";
import { childEnvironment } from "./child-environment.ts";
import type { RoleExport } from "./export-role-files.ts";

/** One file of a role on its way into a backup. */
export interface RoleFile {
  /** Below the role's directory. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Must be read to its end before the next file is asked for. */
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** What a role may say about one file; its name is judged by the backup. */
const headBytesMax = 4096;

/**
 * The files of a role, read by a process that has the role's user. The first one arrives when all are open, and the database's copy with them: until
 * it is read, nothing of that moment is lost.
 */
export class RoleFiles implements AsyncDisposable {
  readonly #child;
  readonly #source: ByteSource;
  readonly #ended: Promise<number | null>;
  #said = "";

  constructor(wanted: RoleExport) {
    const args = ["--disable-warning=ExperimentalWarning", entryFile("export-role-files"), JSON.stringify(wanted)];
    this.#child = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: childEnvironment(process.env),
    });
    this.#child.stderr.on("data", (chunk: Buffer) => {
      this.#said = (this.#said + chunk.toString("utf8")).slice(-headBytesMax);
    });
    this.#ended = new Promise((resolve) => {
      this.#child.once("error", () => resolve(null));
      // Not `close`: that waits until everything was read, which nothing does once a backup has failed.
      this.#child.once("exit", resolve);
    });
    this.#source = new ByteSource(this.#child.stdout as AsyncIterable<Uint8Array>);
  }

  /** The next file, or undefined after the last. */
  async next(): Promise<RoleFile | undefined> {
    const length = await this.#head(4);
    const headBytes = length.readUInt32BE();
    if (headBytes === 0) {
      if ((await this.#ended) !== 0) throw this.#failure();
      return undefined;
    }
    if (headBytes > headBytesMax) throw this.#failure();
    const { name, sizeBytes } = JSON.parse((await this.#head(headBytes)).toString("utf8")) as RoleFile;
    return { name, sizeBytes, bytes: this.#whole(sizeBytes) };
  }

  /** A process that ends within a file says why. */
  async *#whole(sizeBytes: number): AsyncGenerator<Uint8Array> {
    try {
      yield* this.#source.stream(sizeBytes);
    } catch {
      await this.#ended;
      throw this.#failure();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    this.#child.stdout.destroy();
    await this.#ended;
  }

  async #head(length: number): Promise<Buffer> {
    const bytes = await this.#source.readUpTo(length);
    if (bytes.length === length) return bytes;
    await this.#ended;
    throw this.#failure();
  }

  #failure(): BackupError {
    const lines = this.#said.split("\n").filter((line) => /^\[?\w*Error( \[\w+\])?: /.test(line));
    const why = lines.at(0) ?? (this.#said.trim() || "the process that reads them ended");
    return new BackupError("engine", `the engine's own files cannot be read: ${why.trim()}`);
  }
}
