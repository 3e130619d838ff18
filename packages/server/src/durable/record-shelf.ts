import { mkdir, readdir, readFile, rename } from "node:fs/promises";
import path from "node:path";

/** How many names of bad records one shelf reports. */
const namesMax = 100;

/** Reads records, and sets those aside that cannot be read, for an operator to look at. Its whole state is in its directory. */
export class RecordShelf {
  readonly #root: string;
  readonly #directory: string;
  readonly #onBad: (file: string, error: unknown) => void;

  /** `root` is what a record's name on the shelf is relative to. */
  constructor(root: string, onBad: (file: string, error: unknown) => void) {
    this.#root = root;
    this.#directory = path.join(root, "bad");
    this.#onBad = onBad;
  }

  /** The record, or undefined where there is none. One that `parse` refuses is put on the shelf: it is then as absent as one that never was. */
  async read<T>(file: string, parse: (text: string) => T): Promise<T | undefined> {
    let text: string;
    try {
      text = await readFile(file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
    try {
      return parse(text);
    } catch (error) {
      await this.#setAside(file);
      this.#onBad(file, error);
      return undefined;
    }
  }

  async #setAside(file: string): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const name = path.relative(this.#root, file).replaceAll("/", ".");
    await rename(file, path.join(this.#directory, `${name}.bad-${Date.now()}`));
  }

  /** What lies on the shelf. */
  async names(): Promise<readonly string[]> {
    const found: string[] = await readdir(this.#directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return [];
      throw error;
    });
    return found.toSorted().slice(0, namesMax);
  }
}
