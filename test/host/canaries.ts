import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { digestOf } from "./layer-blob.ts";

/** Things of root's that no caller may make the helper read, write, give away or run. */
export class Canaries {
  readonly dir: string;
  readonly secret: string;
  readonly secretText = "only root may know this\n";
  readonly program: string;
  readonly #ran: string;
  readonly #before: string;

  constructor(dir: string) {
    this.dir = dir;
    mkdirSync(dir);
    // Open to all, so that the node's user gets to the names: what protects the rest is each file's own mode.
    chmodSync(dir, 0o755);
    this.secret = path.join(dir, "secret");
    this.program = path.join(dir, "program");
    this.#ran = path.join(dir, "ran");
    writeFileSync(this.secret, this.secretText, { mode: 0o600 });
    writeFileSync(path.join(dir, "blob"), this.secretText, { mode: 0o600 });
    writeFileSync(path.join(dir, "out"), "", { mode: 0o600 });
    writeFileSync(this.program, `#!/bin/sh\ntouch ${this.#ran}\n`, { mode: 0o700 });
    mkdirSync(path.join(dir, "empty"), { mode: 0o700 });
    this.#before = this.#look();
  }

  get secretDigest(): string {
    return digestOf(Buffer.from(this.secretText));
  }

  /** What has changed; empty: nothing. */
  changes(): string {
    if (existsSync(this.#ran)) return "the program ran";
    const found = this.#look();
    return found === this.#before ? "" : `before:\n${this.#before}\nafter:\n${found}`;
  }

  /** Whether a text tells what is in the secret. */
  isToldBy(text: string): boolean {
    return [this.secretText.trim(), this.secretDigest.slice("sha256:".length)].some((known) => text.includes(known));
  }

  #look(): string {
    const names = ["", ...readdirSync(this.dir).toSorted()];
    return names.map((name) => describe(path.join(this.dir, name))).join("\n");
  }
}

/** Everything about a file but its links, which others may make to it, and what goes with them. */
function describe(file: string): string {
  const { mode, uid, gid, size, mtimeNs } = statSync(file, { bigint: true });
  const content = mode & 0o100000n ? readFileSync(file, "utf8") : "";
  return [path.basename(file), mode.toString(8), uid, gid, size, mtimeNs, JSON.stringify(content)].join(" ");
}
