import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { followFiles } from "./followed-files.ts";
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

/** Certificates that follow their files. */
export class TlsFiles implements Disposable {
  readonly #options: TlsFilesOptions;
  readonly #following: Disposable;
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
    this.#following = followFiles(files, () => this.#reload());
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
    this.#following[Symbol.dispose]();
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
