import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readDevDir, rootDir } from "../checkout.ts";
import { buildGoModule } from "./go-module.ts";
import { bytesOf, type ReleaseTree, releaseVersion } from "./layout.ts";
import { buildPython, pep440 } from "./python.ts";
import { sdkPackage } from "./sdk-package.ts";

/** Compilers start cold on two busy cores. */
const timeoutMs = 60_000;

const version = releaseVersion();
const work = mkdtempSync(path.join(os.tmpdir(), "agent-sandbox-packages-"));
const app = path.join(work, "app");
let sdk: ReleaseTree;

beforeAll(async () => {
  sdk = await sdkPackage(version);
  for (const [name, file] of sdk) writeFile(path.join(app, "node_modules/@agent-sandbox/sdk", name), bytesOf(file));
}, timeoutMs);
afterAll(() => rmSync(work, { recursive: true }));

function writeFile(file: string, content: string | Buffer): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, content);
}

function digests(dir: string, names: readonly string[]): Record<string, string> {
  const digest = (name: string): string =>
    createHash("sha256")
      .update(readFileSync(path.join(dir, name)))
      .digest("hex");
  return Object.fromEntries(names.map((name) => [name, digest(name)]));
}

test("packages: every manifest has the version of the release", () => {
  const read = (file: string): string => readFileSync(path.join(rootDir, file), "utf8");
  for (const name of ["api", "cli", "kube", "sdk", "server"])
    expect(JSON.parse(read(`packages/${name}/package.json`)), name).toMatchObject({ version });
  for (const folder of ["sdks/python", "sdks/python/agentic-sandbox-client"])
    expect(read(`${folder}/pyproject.toml`)).toContain(`version = "${version}"`);
  expect(read("sdks/python/agentic-sandbox-client/pyproject.toml")).toContain(`"agent-sandbox-sdk==${version}"`);
});

test(
  "Python packages: two builds have the same bytes, and each wheel one module of the name that is ours",
  async () => {
    const [one, two] = [path.join(work, "python1"), path.join(work, "python2")];
    const names = await buildPython({ version: "1.2.3-rc.4", outDir: one });
    expect(names).toEqual([
      "agent_sandbox_sdk-1.2.3rc4-py3-none-any.whl",
      "agent_sandbox_sdk-1.2.3rc4.tar.gz",
      "agentic_sandbox_client-1.2.3rc4-py3-none-any.whl",
      "agentic_sandbox_client-1.2.3rc4.tar.gz",
    ]);
    const mask = process.umask(0o077);
    await buildPython({ version: "1.2.3-rc.4", outDir: two }).finally(() => process.umask(mask));
    expect(digests(two, names)).toEqual(digests(one, names));
    const list =
      "import sys, zipfile; print(*sorted({n.split('/')[0] for n in zipfile.ZipFile(sys.argv[1]).namelist()}))";
    const modules = names
      .filter((name) => name.endsWith(".whl"))
      .map((name) => spawnSync(python, ["-c", list, path.join(one, name)], { encoding: "utf8" }).stdout.trim());
    expect(modules).toEqual([
      "agent_sandbox_sdk agent_sandbox_sdk-1.2.3rc4.dist-info",
      "agentic_sandbox_client agentic_sandbox_client-1.2.3rc4.dist-info",
    ]);
  },
  timeoutMs,
);

const python = path.join(readDevDir("python"), "bin/python");

test("Python packages: a version that Python cannot spell is refused", () => {
  expect(pep440("1.2.3")).toBe("1.2.3");
  expect(pep440("1.2.3-alpha.1")).toBe("1.2.3a1");
  expect(() => pep440("1.2.3-nightly")).toThrow("no spelling in Python");
});

test("Go module: two builds have the same bytes, and the archive is one that Python's reader finds whole", () => {
  const [one, two] = [path.join(work, "go1"), path.join(work, "go2")];
  const names = buildGoModule({ version, outDir: one });
  buildGoModule({ version, outDir: two });
  expect(digests(two, names)).toEqual(digests(one, names));
  const check = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.testzip(), *z.namelist(), sep='\\n')";
  const archive = names.find((name) => name.endsWith(".zip")) ?? "";
  const { stdout } = spawnSync(python, ["-c", check, path.join(one, archive)], { encoding: "utf8" });
  const [broken, ...files] = stdout.trim().split("\n");
  expect(broken).toBe("None");
  expect(files.every((name) => name.startsWith(`agent-sandbox.dev/sdk@v${version}/`))).toBe(true);
  for (const name of ["go.mod", "go.sum", "LICENSE", "sandbox.go", "errorcode/errorcode.gen.go"])
    expect(files).toContain(`agent-sandbox.dev/sdk@v${version}/${name}`);
});

test(
  "npm packages: two builds of the SDK have the same bytes",
  async () => {
    const again = await sdkPackage(version);
    expect([...again.keys()]).toEqual([...sdk.keys()]);
    for (const [name, file] of again) {
      const before = sdk.get(name);
      expect(before !== undefined && bytesOf(before).equals(bytesOf(file)), name).toBe(true);
    }
  },
  timeoutMs,
);

test(
  "npm packages: a program in TypeScript compiles against the SDK's types, and one with a mistake does not",
  () => {
    symlinkSync(path.join(rootDir, "node_modules/@types"), path.join(app, "node_modules/@types"));
    const compilerOptions = { strict: true, noEmit: true, module: "nodenext", target: "es2023", types: ["node"] };
    const lib = ["es2023", "esnext.disposable", "dom"];
    writeFile(path.join(app, "package.json"), '{"type":"module"}');
    writeFile(path.join(app, "tsconfig.json"), JSON.stringify({ compilerOptions: { ...compilerOptions, lib } }));
    const compile = (text: string): string => {
      writeFile(path.join(app, "main.ts"), text);
      return spawnSync(path.join(rootDir, "node_modules/.bin/tsc"), ["-p", app], { encoding: "utf8" }).stdout;
    };
    const head = `import { Sandbox, type RunResult } from "@agent-sandbox/sdk";
import { connectThroughRouter } from "@agent-sandbox/sdk/browser";
export const connect: typeof connectThroughRouter = connectThroughRouter;
export async function hello(): Promise<string> {
  await using box = await Sandbox.create();
`;
    expect(compile(`${head}  const result: RunResult = await box.run("true");\n  return result.stdout;\n}\n`)).toBe("");
    expect(compile(`${head}  return (await box.run("true")).exitCode;\n}\n`)).toContain("TS2322");
  },
  timeoutMs,
);

test("npm packages: a bundler for browsers gets an SDK without anything of Node", async () => {
  writeFile(
    path.join(app, "page.js"),
    'import { connectThroughRouter } from "@agent-sandbox/sdk"; connectThroughRouter;',
  );
  const { outputFiles, warnings } = await build({
    entryPoints: [path.join(app, "page.js")],
    bundle: true,
    platform: "browser",
    format: "esm",
    write: false,
    logLevel: "silent",
  });
  expect(warnings).toEqual([]);
  expect(outputFiles[0]?.text).not.toMatch(/node:|getBuiltinModule|from "(?:yaml|tar-stream)"/);
});

test("npm packages: a kubeconfig that runs a program for its credential says which package to install", () => {
  const context = { name: "one", context: { cluster: "one", user: "one" } };
  const kubeconfig = {
    "current-context": "one",
    contexts: [context],
    clusters: [{ name: "one", cluster: { server: "https://127.0.0.1:1" } }],
    users: [{ name: "one", user: { exec: { apiVersion: "client.authentication.k8s.io/v1", command: "true" } } }],
  };
  writeFile(path.join(app, "kubeconfig"), JSON.stringify(kubeconfig));
  const use = `import { Sandbox } from "@agent-sandbox/sdk";
await Sandbox.get("dev", { engine: { kubeconfig: "kubeconfig" } }).catch(({ message }) => console.log(message));`;
  writeFile(path.join(app, "use.mjs"), use);
  const { stdout } = spawnSync(process.execPath, ["use.mjs"], { cwd: app, encoding: "utf8" });
  expect(stdout).toContain("install @kubernetes/client-node beside the SDK to use it");
});

function installedLauncher(): string {
  const installed = path.join(app, "node_modules/@agent-sandbox/cli/bin/agent-sandbox.mjs");
  mkdirSync(path.dirname(installed), { recursive: true });
  cpSync(path.join(import.meta.dirname, "npm-launcher.mjs"), installed);
  return installed;
}

/** Runs the launcher as npm would have installed it, on a platform that the process takes itself for. */
function launch(platform: { readonly os?: string; readonly arch?: string }, ...args: string[]) {
  const claim = Object.entries({ platform: platform.os, arch: platform.arch })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `Object.defineProperty(process, "${name}", { value: "${value ?? ""}" });`);
  const preload = path.join(work, "platform.cjs");
  writeFileSync(preload, claim.join("\n"));
  const installed = installedLauncher();
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--require", preload, installed, ...args], {
    encoding: "utf8",
  });
  return { status, stdout, stderr };
}

test("npm packages: the command says in one sentence why it has no programs here", () => {
  expect(launch({ os: "darwin", arch: "arm64" }, "ls")).toEqual({
    status: 1,
    stdout: "",
    stderr:
      "agent-sandbox: there are no programs for darwin-arm64; the command runs on Linux on x64 and arm64, also in a virtual machine\n",
  });
  expect(launch({ arch: "x64" }, "ls")).toEqual({
    status: 1,
    stdout: "",
    stderr:
      "agent-sandbox: the package @agent-sandbox/cli-linux-x64 is not installed; npm leaves it out where optional packages are omitted: install again without --omit=optional\n",
  });
});

test("npm packages: the command ends as its program does, by code or by signal", () => {
  const carrier = path.join(app, "node_modules/@agent-sandbox/cli-linux-x64");
  writeFile(path.join(carrier, "package.json"), "{}");
  writeFile(path.join(carrier, "bin/agent-sandbox"), '#!/bin/sh\necho "$@"; eval "$1"\n');
  spawnSync("chmod", ["+x", path.join(carrier, "bin/agent-sandbox")]);
  expect(launch({ arch: "x64" }, "exit 7")).toMatchObject({ status: 7, stdout: "exit 7\n" });
  expect(launch({ arch: "x64" }, "kill -TERM $$")).toMatchObject({ status: 143 });
  rmSync(carrier, { recursive: true });
});

test("npm packages: a signal for the command reaches its program, which decides how it ends", async () => {
  const carrier = path.join(app, "node_modules/@agent-sandbox", `cli-${process.platform}-${process.arch}`);
  writeFile(path.join(carrier, "package.json"), "{}");
  const script = "#!/bin/sh\ntrap 'exit 3' TERM\necho ready\nfor _ in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done\n";
  writeFile(path.join(carrier, "bin/agent-sandbox"), script);
  spawnSync("chmod", ["+x", path.join(carrier, "bin/agent-sandbox")]);
  // It ends by itself after a second, so that a signal that does not reach it leaves nothing behind.
  const command = spawn(process.execPath, [installedLauncher()], { stdio: ["ignore", "pipe", "inherit"] });
  await once(command.stdout, "data");
  command.kill("SIGTERM");
  expect(await once(command, "exit")).toEqual([3, null]);
  rmSync(carrier, { recursive: true });
});
