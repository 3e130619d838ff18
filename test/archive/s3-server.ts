import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { programPath } from "../cluster/programs.ts";

/** The one bucket of a server. */
export const bucket = "archives";

/** Who may use it. */
export const s3Credentials = {
  accessKeyId: "test-access",
  secretAccessKey: "test-secret",
  region: "us-east-1",
} as const;

/** A real S3 server on loopback, with its objects as files of a directory of its own. */
export class S3Server implements AsyncDisposable {
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #work: string;

  private constructor(port: number, child: ChildProcess, work: string) {
    this.port = port;
    this.#child = child;
    this.#work = work;
  }

  static async open(): Promise<S3Server> {
    const work = mkdtempSync(path.join(os.tmpdir(), "s3-server-"));
    for (const name of [`objects/${bucket}`, "sidecar"]) mkdirSync(path.join(work, name), { recursive: true });
    const port = await freePort();
    const { accessKeyId, secretAccessKey, region } = s3Credentials;
    const flags = ["--port", `127.0.0.1:${port}`, "--region", region, "--quiet"];
    // Files that keep their attributes beside them: not every directory for temporary files takes extended ones.
    const backend = ["posix", "--sidecar", path.join(work, "sidecar"), path.join(work, "objects")];
    const child = spawn(programPath("versitygw"), [...flags, ...backend], {
      stdio: "ignore",
      env: { PATH: "/usr/bin:/bin", ROOT_ACCESS_KEY: accessKeyId, ROOT_SECRET_KEY: secretAccessKey },
    });
    const server = new S3Server(port, child, work);
    await server.#answers();
    return server;
  }

  /** Where an object lies. */
  fileOf(name: string): string {
    return path.join(this.#work, "objects", bucket, name);
  }

  /** What an object has. */
  read(name: string): Buffer {
    return readFileSync(this.fileOf(name));
  }

  async #answers(): Promise<void> {
    for (let tries = 0; tries < 200; tries += 1) {
      if (this.#child.exitCode !== null) break;
      const answer = await fetch(`http://127.0.0.1:${this.port}/`).catch(() => undefined);
      if (answer !== undefined) return;
      await sleep(50);
    }
    await this[Symbol.asyncDispose]();
    throw new Error("the S3 server does not answer");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null) {
      this.#child.kill("SIGKILL");
      await once(this.#child, "exit");
    }
    rmSync(this.#work, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}
