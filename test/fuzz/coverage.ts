import { Session } from "node:inspector";

interface FunctionCoverage {
  readonly ranges: readonly { readonly startOffset: number; readonly endOffset: number; readonly count: number }[];
}
interface ScriptCoverage {
  readonly url: string;
  readonly functions: readonly FunctionCoverage[];
}

/**
 * Which blocks of the product's code have run, as V8 counts them. Reading costs about a millisecond, so only the long mode looks: an
 * input that reached a block for the first time joins the corpus.
 */
export class Coverage implements Disposable {
  readonly #session = new Session();
  readonly #seen = new Set<string>();

  constructor() {
    this.#session.connect();
    this.#session.post("Profiler.enable");
    // Without counts V8 reports a block once, when it is first reached: that is all a search needs.
    this.#session.post("Profiler.startPreciseCoverage", { callCount: false, detailed: true });
  }

  /** Whether something ran since the last call that had not run before. */
  hasGrown(): boolean {
    let grown = false;
    this.#session.post("Profiler.takePreciseCoverage", (_error, answer) => {
      for (const script of (answer?.result ?? []) as readonly ScriptCoverage[]) {
        if (isProduct(script.url)) grown = this.#add(script) || grown;
      }
    });
    return grown;
  }

  #add({ url, functions }: ScriptCoverage): boolean {
    const before = this.#seen.size;
    for (const { ranges } of functions)
      for (const { startOffset, endOffset, count } of ranges)
        if (count > 0) this.#seen.add(`${url}:${startOffset}:${endOffset}`);
    return this.#seen.size > before;
  }

  [Symbol.dispose](): void {
    this.#session.disconnect();
  }
}

/** Our code and the parsers among our dependencies. */
function isProduct(url: string): boolean {
  return /\/packages\/[a-z]+\/src\/|\/node_modules\/(dns-packet|tar-stream|ws|zod|@bufbuild)\//.test(url);
}
