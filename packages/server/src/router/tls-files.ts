import { type FSWatcher, readFileSync, watch } from "node:fs";
import path from "node:path";
import { createSecureContext } from "node:tls";
import type { ServerTls } from "./sniffing-server.ts";

/** Certificates on disk, as a cluster mounts them. */
export interface TlsFilesOptions {
  readonly certFile: string;
  readonly keyFile: string;
  readonly clientCaFile?: string;
  readonly clientCertificate: ServerTls["clientCertificate"];
  /** Told of every attempt to read them, the first included. */
  readonly onLoad: (outcome: "success" | "failure", error?: unknown) => void;
}

/** Two files of one pair are replaced one after the other: they are read once both are there. */
const debounceMs = 250;

/** Certificates that follow their files. */
export class TlsFiles implements Disposable {
  readonly #options: TlsFilesOptions;
  readonly #watchers: FSWatcher[] = [];
  #timer: NodeJS.Timeout | undefined;
  #onChange: ((tls: ServerTls) => void) | undefined;
  #current: ServerTls;

  /** Throws where the files cannot be used. */
  constructor(options: TlsFilesOptions) {
    this.#options = options;
    this.#current = this.#read();
    options.onLoad("success");
    const files = [
      options.certFile,
      options.keyFile,
      ...(options.clientCaFile === undefined ? [] : [options.clientCaFile]),
    ];
    for (const directory of new Set(files.map((file) => path.dirname(file)))) {
      // Secrets are swapped by a link whose name begins with two dots; everything else is replaced under its own name.
      const names = new Set(
        files.filter((file) => path.dirname(file) === directory).map((file) => path.basename(file)),
      );
      this.#watchers.push(
        watch(directory, { persistent: false }, (_event, name) => {
          if (name === null || name.startsWith("..") || names.has(name)) this.#schedule();
        }),
      );
    }
  }

  /** What was read last and could be used. */
  get current(): ServerTls {
    return this.#current;
  }

  /** Calls back with every usable change. */
  onChange(listener: (tls: ServerTls) => void): void {
    this.#onChange = listener;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    for (const watcher of this.#watchers) watcher.close();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#reload(), debounceMs);
  }

  /** A pair that cannot be used leaves the old one in place: half of a change must not end the service. */
  #reload(): void {
    try {
      this.#current = this.#read();
    } catch (error) {
      this.#options.onLoad("failure", error);
      return;
    }
    this.#options.onLoad("success");
    this.#onChange?.(this.#current);
  }

  #read(): ServerTls {
    const { certFile, keyFile, clientCaFile, clientCertificate } = this.#options;
    const [cert, key] = [readFileSync(certFile), readFileSync(keyFile)];
    const ca = clientCaFile === undefined ? undefined : readFileSync(clientCaFile);
    if (ca !== undefined && !ca.includes("BEGIN CERTIFICATE")) throw new Error(`${clientCaFile} holds no certificate`);
    createSecureContext({ cert, key, ...(ca !== undefined && { ca }) });
    return { cert, key, clientCertificate, ...(ca !== undefined && { ca }) };
  }
}
