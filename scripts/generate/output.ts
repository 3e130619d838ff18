import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** Where generated files go: to disk, or into a comparison with what is there. */
export class Output {
  readonly #root: string;
  readonly #check: boolean;
  readonly #stale: string[] = [];

  constructor(options: { root: string; check: boolean }) {
    this.#root = options.root;
    this.#check = options.check;
  }

  /** Paths whose content differs from what the sources say, relative to the repository. */
  get stale(): readonly string[] {
    return this.#stale;
  }

  /** Makes `path` hold `content`; in check mode only notes whether it does. */
  write(path: string, content: string): void {
    const file = join(this.#root, path);
    if (readIfPresent(file) === content) return;
    this.#stale.push(relative(this.#root, file));
    if (this.#check) return;
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }

  /** Makes `path` absent; in check mode only notes whether it is. */
  remove(path: string): void {
    const file = join(this.#root, path);
    if (readIfPresent(file) === undefined) return;
    this.#stale.push(path);
    if (!this.#check) rmSync(file);
  }
}

/** The text of a file, or undefined where there is none. */
export function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
