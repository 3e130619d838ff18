import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, cpSync, mkdirSync, openSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { readDevDir, rootDir } from "../../scripts/checkout.ts";
import { type EmptyRoot, must } from "./empty-root.ts";

/** Where programs in a root find its registries. The network is the root's own, so that the ports are free. */
export const registries = {
  npm: "http://127.0.0.1:4873",
  python: "http://127.0.0.1:8080/simple",
  go: "file:///srv/goproxy",
} as const;

/** Registries of each kind beside a root, which hold the packages of a release and what these require; no one is asked for more. */
export class Registries implements AsyncDisposable {
  readonly #servers: readonly ChildProcess[];

  private constructor(servers: readonly ChildProcess[]) {
    this.#servers = servers;
  }

  /** `dist` has the files of a release; `work` is for the registries' own. */
  static async open(root: EmptyRoot, { dist, work }: { dist: string; work: string }): Promise<Registries> {
    cpSync(path.join(dist, "goproxy"), path.join(root.dir, "srv/goproxy"), { recursive: true });
    const opened = new Registries([startNpm(root, work), startPython(root, { dist, work })]);
    // What the SDK requires, out of the checkout's packages; the release's own archives lie beside them.
    const archives = path.join(work, "npm");
    mkdirSync(archives);
    for (const name of requiredBy(["tar-stream", "yaml"])) packInstalled(name, archives);
    for (const name of readdirSync(dist).filter((file) => file.endsWith(".tgz")))
      symlinkSync(path.join(dist, name), path.join(archives, name));
    const script = path.join(import.meta.dirname, "publish.ts");
    const log = openSync(logOf(work), "a");
    const publishing = root.startBeside(process.execPath, [script, archives, registries.npm], log);
    const [code] = (await once(publishing, "exit")) as [number];
    closeSync(log);
    if (code !== 0)
      throw new Error(`publishing to ${registries.npm} ended with ${code}:\n${readFileSync(logOf(work), "utf8")}`);
    return opened;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) {
      const gone = once(server, "exit");
      server.kill("SIGKILL");
      await gone;
    }
  }
}

function startNpm(root: EmptyRoot, work: string): ChildProcess {
  const config = path.join(work, "verdaccio.yaml");
  const settings = {
    storage: path.join(work, "verdaccio"),
    auth: { htpasswd: { file: path.join(work, "htpasswd") } },
    uplinks: {},
    packages: { "**": { access: "$all", publish: "$all" } },
    web: { enable: false },
    max_body_size: "500mb",
    log: { type: "stdout", level: "error" },
  };
  writeFileSync(config, JSON.stringify(settings));
  const program = path.join(readDevDir("package-tools"), "node_modules/verdaccio/bin/verdaccio");
  const log = openSync(logOf(work), "a");
  try {
    return root.startBeside(process.execPath, [program, "--config", config, "--listen", registries.npm], log);
  } finally {
    closeSync(log);
  }
}

/** What the npm registry, and who publishes to it, have to say. */
function logOf(work: string): string {
  return path.join(work, "npm.log");
}

/** An index by PEP 503 is a folder per project with links to its files, which a web server's listing of folders is. */
function startPython(root: EmptyRoot, { dist, work }: { dist: string; work: string }): ChildProcess {
  for (const folder of [dist, readDevDir("wheels")])
    for (const name of readdirSync(folder).filter((file) => file.endsWith(".whl"))) {
      const project = (name.split("-")[0] ?? "").toLowerCase().replaceAll(/[-_.]+/g, "-");
      mkdirSync(path.join(work, "pypi/simple", project), { recursive: true });
      cpSync(path.join(folder, name), path.join(work, "pypi/simple", project, name));
    }
  const args = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", path.join(work, "pypi"), "8080"];
  return root.startBeside(path.join(readDevDir("python"), "bin/python"), args);
}

/** Installed packages and all that they require. */
function requiredBy(names: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>();
  const waiting = [...names];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (found.has(name)) continue;
    found.add(name);
    const text = readFileSync(path.join(rootDir, "node_modules", name, "package.json"), "utf8");
    waiting.push(...Object.keys((JSON.parse(text) as { dependencies?: object }).dependencies ?? {}));
  }
  return found;
}

function packInstalled(name: string, dir: string): void {
  const file = path.join(dir, `${name.replace("/", "-")}.tgz`);
  must("tar", ["-C", path.join(rootDir, "node_modules", name), "--transform", "s,^\\.,package,", "-czf", file, "."]);
}
