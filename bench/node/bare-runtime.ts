import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readSetup } from "../../scripts/checkout.ts";
import type { RealEngine } from "../../test/node/real-engine.ts";

/** What the program behind the daemon says when it runs. */
const firstWord = "here-i-am";

/** `runsc` by itself, with the options the engine uses, on a root of this machine's /usr. */
export class BareRuntime {
  readonly #engine: RealEngine;
  readonly #work = mkdtempSync("/tmp/as-bare-");

  constructor(engine: RealEngine) {
    this.#engine = engine;
    this.#writeBundle("bundle", ["/usr/bin/sleep", "infinity"]);
    const speaks = ["/usr/bin/sh", "-c", `echo ${firstWord}; exec sleep infinity`];
    this.#writeBundle("daemon", ["/sandboxd", "init", "--", ...speaks]);
    copyFileSync(readSetup().sandboxd, path.join(this.#work, "daemon/rootfs/sandboxd"));
  }

  #writeBundle(name: string, args: readonly string[]): void {
    const root = path.join(this.#work, name, "rootfs");
    for (const dir of ["usr", "proc", "dev", "tmp", "etc", "lib", "lib64"])
      mkdirSync(path.join(root, dir), { recursive: true });
    const config = {
      ociVersion: "1.0.2",
      process: { user: { uid: 0, gid: 0 }, args, env: ["PATH=/usr/bin"], cwd: "/" },
      root: { path: "rootfs", readonly: true },
      mounts: [
        { destination: "/proc", type: "proc", source: "proc" },
        { destination: "/lib64", type: "bind", source: "/usr/lib64", options: ["bind", "ro"] },
        { destination: "/lib", type: "bind", source: "/usr/lib", options: ["bind", "ro"] },
        { destination: "/usr", type: "bind", source: "/usr", options: ["bind", "ro"] },
      ],
      linux: { namespaces: ["pid", "network", "ipc", "uts", "mount"].map((type) => ({ type })) },
    };
    writeFileSync(path.join(this.#work, name, "config.json"), JSON.stringify(config));
  }

  async #call(...args: readonly string[]): Promise<void> {
    const options = [`--root=${this.#work}/state`, "--platform=systrap", "--overlay2=none", "--ignore-cgroups"];
    const [program, argv] = this.#engine.place.inside(readSetup().runsc, ...options, ...args);
    // A detached sandbox keeps its caller's output open, so it gets a file.
    const log = openSync(path.join(this.#work, "out"), "a");
    const child = spawn(program, argv, { stdio: ["ignore", log, log] });
    const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
    if (code !== 0)
      throw new Error(`runsc ${args[0]}: ${code} ${readFileSync(path.join(this.#work, "out"), "utf8").slice(-500)}`);
  }

  run(id: string): Promise<void> {
    return this.#call("run", "--detach", "--bundle", path.join(this.#work, "bundle"), id);
  }

  /** Runs the daemon as the first process; resolves when the program behind it has spoken. */
  async runDaemon(id: string): Promise<void> {
    const output = path.join(this.#work, "out");
    const spokenBefore = readFileSync(output, "utf8").split(firstWord).length;
    await this.#call("run", "--detach", "--bundle", path.join(this.#work, "daemon"), id);
    while (readFileSync(output, "utf8").split(firstWord).length === spokenBefore) await sleep(1);
  }

  exec(id: string): Promise<void> {
    return this.#call("exec", id, "/usr/bin/true");
  }

  stop(id: string): Promise<void> {
    return this.#call("delete", "--force", id);
  }

  async close(): Promise<void> {
    this.#engine.place.run(["sh", "-c", `umount ${this.#work}/state/null-netns 2>/dev/null; true`]);
    rmSync(this.#work, { recursive: true, force: true });
  }
}
