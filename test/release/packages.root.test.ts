import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { recordFileIn, runDirOf } from "@agent-sandbox/kube/engine-record";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { releaseVersion } from "../../scripts/release/layout.ts";
import type { Finished } from "../node/namespace.ts";
import { EmptyRoot } from "./empty-root.ts";
import { Registries, registries } from "./registries.ts";
import { givePython, hasDeno, lentRuntimes, runtimes } from "./runtimes.ts";

// One root for all: what `npx` starts in it is the engine that the SDKs talk to, as it is for somebody who installs both.
const opened = new AsyncDisposableStack();
let root: EmptyRoot;
let first: Finished;
let firstMs = 0;

/** Archives of 85 MB are made, published and installed: 40 s of two processors, more where others use them too. */
const setUpMs = 300_000;

beforeAll(async () => {
  const work = mkdtempSync("/var/tmp/as-packages-test-");
  opened.defer(() => rmSync(work, { recursive: true }));
  const dist = path.join(work, "dist");
  const parts = ["npm", "python", "go"].flatMap((part) => ["--only", part]);
  const main = path.join(rootDir, "scripts/release/main.ts");
  const built = promisify(execFile)(process.execPath, [main, ...parts, "--arch", process.arch, "--out", dist]);
  const unpacked = EmptyRoot.open(lentRuntimes()).then((empty) => {
    root = opened.use(empty);
  });
  await Promise.all([unpacked, built]);
  opened.use(await Registries.open(root, { dist, work }));
  const startMs = performance.now();
  first = npx("@agent-sandbox/cli", "run", "--", "echo", "hi");
  firstMs = performance.now() - startMs;
  opened.defer(() => void npx("@agent-sandbox/cli", "down", "--purge"));
}, setUpMs);
afterAll(() => opened.disposeAsync());

const npmSettings = [`npm_config_registry=${registries.npm}`, "npm_config_update_notifier=false"];

function npx(...args: readonly string[]): Finished {
  return root.run(
    "env",
    `PATH=/opt/node20/bin:/usr/sbin:/usr/bin`,
    ...npmSettings,
    "node",
    runtimes.npx,
    "--yes",
    ...args,
  );
}

/** A folder of the root with programs of `programs/` in it, and files besides. */
function folderWith(folder: string, programs: readonly string[], files: Readonly<Record<string, string>> = {}): string {
  const dir = path.join(root.dir, folder);
  mkdirSync(dir, { recursive: true });
  for (const name of programs) cpSync(path.join(import.meta.dirname, "programs", name), path.join(dir, name));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(dir, name), text);
  return folder;
}

function runIn(folder: string, ...argv: readonly string[]): Finished {
  return root.run("env", "-C", folder, ...argv);
}

const hello = { status: 0, stdout: "hello from Linux\n" };
const helloAndKept = { status: 0, stdout: "hello from Linux\nkept\n" };

test("npm packages: npx brings the command with its programs, and the first sandbox says hi", () => {
  process.stdout.write(`npx from an empty cache to hi: ${firstMs.toFixed(0)} ms\n`);
  expect(first).toMatchObject({ status: 0, stdout: "hi\n" });
  expect(npx("@agent-sandbox/cli", "--version").stdout).toBe(`${releaseVersion()}\n`);
  expect(npx("@agent-sandbox/cli", "run", "--", "sh", "-c", "exit 7")).toMatchObject({ status: 7 });
});

test("npm packages: the SDK says hello on the oldest Node it promises, on the pinned one, on Bun and on Deno", () => {
  const folder = folderWith("/srv/typescript", ["hello.mjs"], { "package.json": '{"type":"module"}' });
  const install = ["install", "--no-audit", "--no-fund", "@agent-sandbox/sdk"];
  expect(runIn(folder, ...npmSettings, runtimes.node20, runtimes.npm, ...install)).toMatchObject({ status: 0 });
  expect(runIn(folder, runtimes.node20, "hello.mjs")).toMatchObject(helloAndKept);
  expect(runIn(folder, runtimes.node24, "hello.mjs")).toMatchObject(helloAndKept);
  expect(runIn(folder, runtimes.bun, "hello.mjs")).toMatchObject(helloAndKept);
  if (hasDeno) expect(runIn(folder, runtimes.deno, "run", "--allow-all", "hello.mjs")).toMatchObject(helloAndKept);
});

test("npm packages: the entry for browsers needs fetch and nothing else, which Deno without rights shows", () => {
  const folder = folderWith("/srv/page", ["page.mjs", "prepare-page.mjs"], { "package.json": '{"type":"module"}' });
  const install = ["install", "--no-audit", "--no-fund", "@agent-sandbox/sdk"];
  expect(runIn(folder, ...npmSettings, runtimes.node20, runtimes.npm, ...install)).toMatchObject({ status: 0 });
  const record = recordFileIn(runDirOf("/var/lib/agent-sandbox"));
  const prepared = runIn(folder, runtimes.node20, "prepare-page.mjs", record);
  expect(prepared).toMatchObject({ status: 0 });
  const { routerUrl, token } = JSON.parse(prepared.stdout) as { routerUrl: string; token: string };
  const page = ["page.mjs", routerUrl, token];
  expect(runIn(folder, "NODE_EXTRA_CA_CERTS=ca.pem", runtimes.node20, ...page)).toMatchObject(helloAndKept);
  // It may talk to loopback; it may read no file, no environment and start nothing.
  const rights = ["--no-prompt", "--node-modules-dir=manual", "--cert", "ca.pem", "--allow-net=127.0.0.1"];
  if (hasDeno) expect(runIn(folder, runtimes.deno, "run", ...rights, ...page)).toMatchObject(helloAndKept);
});

test("Python packages: pip installs the SDK and the names of early write-ups from one index, and both say hello", () => {
  const python = givePython(root);
  const folder = folderWith("/srv/python", ["hello.py", "early.py"]);
  expect(runIn(folder, python, "-m", "venv", "--without-pip", "venv")).toMatchObject({ status: 0 });
  const pip = ["venv/bin/python", runtimes.pip, "install", "--quiet", "--index-url", registries.python];
  expect(runIn(folder, ...pip, "agent-sandbox-sdk")).toMatchObject({ status: 0 });
  expect(runIn(folder, "venv/bin/python", "hello.py")).toMatchObject(hello);
  expect(runIn(folder, "venv/bin/python", "early.py").stderr).toContain("No module named 'agentic_sandbox_client'");
  expect(runIn(folder, ...pip, "agentic-sandbox-client")).toMatchObject({ status: 0 });
  expect(runIn(folder, "venv/bin/python", "early.py")).toMatchObject(hello);
});

test("Go module: go get takes it from a directory of GOPROXY, its sums hold, and it says hello", () => {
  const folder = folderWith("/srv/go", ["hello.go"], { "go.mod": "module hello\n\ngo 1.26\n" });
  const settings = {
    GOPROXY: `${registries.go},file://${runtimes.goModules}`,
    GONOSUMDB: "*",
    // As the native programs are compiled, whose standard library is in the cache then.
    GOFLAGS: "-mod=mod -trimpath",
    CGO_ENABLED: "0",
    GOTOOLCHAIN: "local",
    GOCACHE: runtimes.goCache,
    // The cache keeps an index of each module by its version, and that of another checkout may have had other files.
    GODEBUG: "goindex=0",
  };
  const go = [...Object.entries(settings).map(([name, value]) => `${name}=${value}`), runtimes.go];
  expect(runIn(folder, ...go, "get", "agent-sandbox.dev/sdk@latest")).toMatchObject({ status: 0 });
  expect(runIn(folder, ...go, "mod", "verify")).toMatchObject({ status: 0, stdout: "all modules verified\n" });
  expect(runIn(folder, ...go, "run", ".")).toEqual({ status: 0, stdout: "hello\n<nil>\n", stderr: "" });
});
