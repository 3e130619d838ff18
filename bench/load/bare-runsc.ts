import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { RealHost } from "../../test/host/real-host.ts";

/** What one sandbox of several has for itself. */
export interface BarePlace {
  /** The root file system that it was saved with, and the one that it gets. */
  readonly rootfs: readonly [was: string, is: string];
  readonly slot: readonly [was: number, is: number];
}

/** `runsc` by itself, with the options that the helper gives it. */
export class BareRunsc {
  readonly #real: RealHost;
  readonly #build: string;
  readonly image: string;

  constructor(real: RealHost, build: string) {
    this.#real = real;
    this.#build = build;
    this.image = path.join(real.work, "image");
  }

  async #call(root: string, ...args: readonly string[]): Promise<void> {
    const options = [
      `--root=${root}`,
      "--platform=systrap",
      "--network=sandbox",
      "--overlay2=none",
      "--ignore-cgroups",
    ];
    const runsc = path.join(this.#real.hostDir, "runtimes", this.#build, "runsc");
    const [program, argv] = this.#real.inside(runsc, ...options, "--net-raw", ...args);
    const child = spawn(program, argv, { stdio: "ignore" });
    const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
    if (code !== 0) throw new Error(`runsc ${args[0]}: ${code}`);
  }

  #bundle(name: string): string {
    return path.join(this.#real.work, `bundle-${name}`);
  }

  #makeBundle(name: string, config: string): void {
    rmSync(this.#bundle(name), { recursive: true, force: true });
    mkdirSync(this.#bundle(name));
    writeFileSync(path.join(this.#bundle(name), "config.json"), config);
  }

  /** Saves a sandbox of the helper's, which goes on, and keeps its configuration for the restore. */
  async checkpoint(id: string): Promise<void> {
    const { instance } = await this.#real.host.info();
    rmSync(this.image, { recursive: true, force: true });
    mkdirSync(this.image);
    const config = readFileSync(path.join(this.#real.hostDir, "containers", id, "config.json"), "utf8");
    this.#makeBundle("bare", config.replaceAll(`"${id}_"`, '"bare"'));
    const flags = ["--leave-running", "--compression=none", "--exclude-committed-zero-pages"];
    const root = `/run/agent-sandbox/${instance}/runsc`;
    await this.#call(root, "checkpoint", ...flags, `--image-path=${this.image}`, `${id}_`);
  }

  /** Makes a configuration for one more sandbox out of what was saved. */
  addPlace(name: string, { rootfs, slot }: BarePlace): void {
    const config = readFileSync(path.join(this.#bundle("bare"), "config.json"), "utf8");
    const ending = (number: number): string => `-${number.toString(16).padStart(4, "0")}"`;
    const own = config
      .replaceAll('"bare"', `"${name}"`)
      .replaceAll(`/rootfs/${rootfs[0]}"`, `/rootfs/${rootfs[1]}"`)
      .replaceAll(ending(slot[0]), ending(slot[1]));
    this.#makeBundle(name, own);
  }

  restore(name = "bare"): Promise<void> {
    const args = ["--detach", "--background", `--bundle=${this.#bundle(name)}`, `--image-path=${this.image}`, name];
    return this.#call(path.join(this.#real.work, "bare"), "restore", ...args);
  }

  delete(name = "bare"): Promise<void> {
    return this.#call(path.join(this.#real.work, "bare"), "delete", "--force", name);
  }
}
