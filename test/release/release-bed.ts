import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import {
  type Client,
  type Credentials,
  createClient,
  httpTransport,
  loadKubeconfig,
  systemClock,
} from "@agent-sandbox/kube";
import type { EngineRecord } from "@agent-sandbox/kube/engine-record";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { type Compiled, compileApp } from "../../scripts/release/compile.ts";
import { type Architecture, releaseName } from "../../scripts/release/layout.ts";
import { sha256Of } from "../../scripts/release/natives.ts";
import { releaseTree } from "../../scripts/release/tree.ts";
import { type Finished, TestNamespace } from "../node/namespace.ts";
import { execInPod } from "../node/pod-exec.ts";

/** What is changed in a release after it was built. */
export interface Changes {
  /** Its runsc is the same program with another digest: what stands behind the end of an ELF file is not loaded. */
  readonly otherRunsc?: boolean;
  /** Files by their path, in place of those that were built. */
  readonly files?: Readonly<Record<string, string>>;
  /** Fields of its record. */
  readonly record?: Readonly<Record<string, unknown>>;
}

const arch = process.arch as Architecture;

/** Releases built from this tree, an engine that was installed from one of them, and a namespace that all of it runs in. */
export class ReleaseBed implements AsyncDisposable {
  readonly place: TestNamespace;
  /** Not below a directory that the engine's users cannot enter. */
  readonly work: string;
  readonly prefix: string;
  readonly dataDir: string;
  readonly #compiled: Compiled;
  #door: Promise<number> | undefined;

  private constructor(place: TestNamespace, compiled: Compiled) {
    this.place = place;
    this.#compiled = compiled;
    this.work = realpathSync(mkdtempSync("/var/tmp/as-release-"));
    chmodSync(this.work, 0o755);
    this.prefix = path.join(this.work, "opt");
    this.dataDir = path.join(this.work, "data");
  }

  static async open(): Promise<ReleaseBed> {
    return new ReleaseBed(await TestNamespace.open(), await compileApp());
  }

  /** Builds a release as a directory and returns it; beside it the tarball. */
  async build(version: string, changes: Changes = {}): Promise<{ readonly dir: string; readonly file: string }> {
    const { otherRunsc = false, files = {}, record = {} } = changes;
    const name = releaseName(version, arch);
    const dir = path.join(this.work, "dist", name);
    const tree = releaseTree({ version, arch, commit: "0".repeat(40), compiled: this.#compiled });
    for (const [file, { mode, content }] of tree) {
      const target = path.join(dir, file);
      mkdirSync(path.dirname(target), { recursive: true });
      const text = files[file] ?? (Buffer.isBuffer(content) ? content : undefined);
      if (text === undefined && !Buffer.isBuffer(content)) copyFileSync(content.file, target);
      else writeFileSync(target, text ?? "");
      chmodSync(target, mode);
    }
    const recordFile = path.join(dir, "release.json");
    const built = JSON.parse(readFileSync(recordFile, "utf8")) as { programs: object; runsc: object };
    const runsc = path.join(dir, "libexec/runsc");
    if (otherRunsc) appendFileSync(runsc, "another build\n");
    const sha256 = sha256Of(runsc);
    const programs = { ...built.programs, runsc: sha256 };
    writeFileSync(recordFile, JSON.stringify({ ...built, runsc: { ...built.runsc, sha256 }, programs, ...record }));
    return { dir, file: await this.pack(name) };
  }

  /** Packs a directory of `dist` as a release is packed, but for the compression, which would be most of a test's time. */
  async pack(name: string): Promise<string> {
    const dist = path.join(this.work, "dist");
    const file = path.join(dist, `${name}.tar.gz`);
    const tar = spawn("tar", ["-C", dist, "--owner=0", "--group=0", "-c", name], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await pipeline(tar.stdout, createGzip({ level: 0 }), createWriteStream(file));
    return file;
  }

  /** Installs a release that was built, as the first one is: unpacked, and a link to it. */
  install(dir: string, version: string): void {
    const versions = path.join(this.prefix, "versions");
    mkdirSync(versions, { recursive: true });
    const { status } = spawnSync("sh", [
      "-c",
      'cp -a "$0" "$1" && ln -sfn "versions/$2" "$3"',
      dir,
      path.join(versions, version),
      version,
      path.join(this.prefix, "current"),
    ]);
    if (status !== 0) throw new Error("the release was not installed");
  }

  /** The words that a command line of the installed version begins with. */
  argv(verb: string, ...args: readonly string[]): string[] {
    return [
      "env",
      `AGENT_SANDBOX_DATA_DIR=${this.dataDir}`,
      path.join(this.prefix, "current/bin/agent-sandbox"),
      verb,
      ...args,
    ];
  }

  /** Runs a verb of the installed version to its end. */
  run(verb: string, ...args: readonly string[]): Finished {
    // Not by a pipe: what an engine started would keep it open.
    const out = path.join(this.work, "out");
    const done = this.place.run(["sh", "-c", '"$@" >"$0" 2>"$0.err" </dev/null', out, ...this.argv(verb, ...args)], {
      timeoutMs: 170_000,
    });
    return { status: done.status, stdout: readFileSync(out, "utf8"), stderr: readFileSync(`${out}.err`, "utf8") };
  }

  must(verb: string, ...args: readonly string[]): string {
    const { status, stdout, stderr } = this.run(verb, ...args);
    if (status !== 0)
      throw new Error(`${verb} ${args.join(" ")} ended with ${status}: ${stderr}${stdout}\n${this.log("supervisor")}`);
    return stdout;
  }

  /** Starts a verb, and kills it when `isTime` says so; resolves with whether it came to that. */
  async runAndKill(isTime: () => boolean, verb: string, ...args: readonly string[]): Promise<boolean> {
    const [program, rest] = this.place.inside(...this.argv(verb, ...args));
    const child = spawn(program, rest, { stdio: "ignore", detached: true });
    const ended = once(child, "exit");
    let isKilled = false;
    const look = setInterval(() => {
      if (isKilled || child.pid === undefined || !isTime()) return;
      isKilled = true;
      process.kill(-child.pid, "SIGKILL");
    }, 2);
    await ended;
    clearInterval(look);
    return isKilled;
  }

  /** What the running engine says of itself. */
  record(): EngineRecord {
    const file = layoutOf(this.dataDir).recordFile;
    return JSON.parse(this.place.must("cat", file)) as EngineRecord;
  }

  /** Runs a script in the sandbox's Pod by the API and runsc, not by the daemon inside. */
  async sh(pod: string, script: string): Promise<string> {
    const { stdout, stderr, exitCode } = await execInPod(await this.#credentials(), {
      namespace: "default",
      pod,
      command: ["sh", "-c", script],
    });
    if (exitCode !== 0) throw new Error(`${script} in ${pod} ended with ${exitCode}: ${stderr}`);
    return stdout.trim();
  }

  /** A client of the engine's API, seen from out here. */
  async client(): Promise<Client> {
    return createClient(httpTransport(await this.#credentials()));
  }

  async #credentials(): Promise<Credentials> {
    const inside = new URL(this.record().apiUrl).port;
    this.#door ??= this.place.openDoor(Number(inside), path.join(this.work, "door.sock"));
    const kubeconfig = path.join(this.work, "kubeconfig");
    const text = readFileSync(layoutOf(this.dataDir).adminKubeconfig, "utf8");
    writeFileSync(kubeconfig, text.replaceAll(`127.0.0.1:${inside}`, `127.0.0.1:${await this.#door}`), { mode: 0o600 });
    return (await loadKubeconfig({ path: kubeconfig, clock: systemClock })).credentials;
  }

  /** What lies in the directory of runsc builds. */
  runtimes(): string[] {
    return this.place.must("ls", path.join(this.dataDir, "host/runtimes")).trim().split("\n");
  }

  log(role: string): string {
    const file = path.join(this.dataDir, "logs", `${role}.log`);
    return existsSync(file) ? readFileSync(file, "utf8").slice(-3000) : "";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (existsSync(this.dataDir)) this.must("down", "--purge");
    } finally {
      await this.place[Symbol.asyncDispose]();
      rmSync(this.work, { recursive: true, force: true });
    }
  }
}
