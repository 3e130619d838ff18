import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import type { Output } from "./output.ts";

/** What the committed stubs were made from and what came out; comparing hashes needs none of the compilers. */
interface StubsLock {
  readonly inputs: string;
  readonly outputs: Readonly<Record<string, string>>;
}

const grpcToolsPin = /^grpcio-tools==/;
const lockPath = "spec/proto/stubs.json";
/** Folders that hold nothing but stubs. */
const outputFolders = {
  nativeGo: "native/internal/gen",
  sdkGo: "sdks/go/internal/gen",
  python: "sdks/python/src/agent_sandbox/_gen",
  typescript: "packages/sdk/src/proto",
  node: "packages/server/src/node/proto",
};
/** The node speaks to the daemon with the SDK's stubs, but must not import the SDK: it has a copy of them. */
const nodeStub = {
  from: `${outputFolders.typescript}/agentsandbox/v1/process.gen.ts`,
  to: `${outputFolders.node}/process.gen.ts`,
};
/**
 * The SDKs carry stubs of our own service only: protobuf registries are process-wide in Go and Python, and a program
 * that also loads the published clients, which bring process.v1, must not fail because of us.
 */
const sdkProtos = "agentsandbox";
/** Answered by the daemon and asked by tools that bring stubs of their own: no TypeScript needs them. */
const toolProtos = "grpc/reflection";

/** Makes the stubs of spec/proto for TypeScript, Go and Python, unless the committed ones are what would come out. */
export function generateStubs(root: string, output: Output, options: { check: boolean }): void {
  const inputs = hashInputs(root);
  const lock = readLock(root);
  const present = presentStubs(root);
  const isCurrent =
    lock?.inputs === inputs &&
    present.length === Object.keys(lock.outputs).length &&
    present.every((path) => lock.outputs[path] === hash(readFileSync(join(root, path), "utf8")));
  if (isCurrent) return;
  if (options.check) {
    output.write(lockPath, `${JSON.stringify({ inputs })}\n`);
    return;
  }
  const made = compile(root);
  for (const [path, text] of made) output.write(path, text);
  for (const path of present) if (!made.has(path)) output.remove(path);
  const outputs = Object.fromEntries([...made].map(([path, text]) => [path, hash(text)]));
  output.write(lockPath, `${JSON.stringify({ inputs, outputs }, null, 1)}\n`);
}

function compile(root: string): Map<string, string> {
  const scratch = mkdtempSync(join(tmpdir(), "agent-sandbox-stubs-"));
  try {
    // The template of native/ names its folder relative to spec/proto; two levels below the scratch folder it stays inside.
    buf(root, ["--template", "buf.gen.yaml", "-o", join(scratch, "a/b")]);
    buf(root, ["--template", sdkGoTemplate, "--path", sdkProtos, "-o", scratch]);
    buf(root, ["--template", typescriptTemplate, "--exclude-path", toolProtos, "-o", scratch]);
    compilePython(root, join(scratch, outputFolders.python));
    const made = new Map<string, string>();
    for (const folder of Object.values(outputFolders)) {
      for (const file of globSync(`${folder}/**/*.*`, { cwd: scratch }).sort()) {
        const text = readFileSync(join(scratch, file), "utf8");
        const [path, content] = finish(file, text);
        made.set(path, content);
      }
    }
    const forNode = made.get(nodeStub.from);
    if (forNode === undefined) throw new Error(`no ${nodeStub.from} came out`);
    made.set(nodeStub.to, forNode);
    for (const folder of ["", "/agentsandbox", "/agentsandbox/v1"]) {
      made.set(`${outputFolders.python}${folder}/__init__.py`, "");
    }
    return made;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

const goPlugins = (out: string) => [
  { local: ["go", "-C", "../../native", "tool", "protoc-gen-go"], out, opt: "paths=source_relative" },
  {
    local: ["go", "-C", "../../native", "tool", "protoc-gen-connect-go"],
    out,
    opt: ["paths=source_relative", "simple"],
  },
];

const sdkGoTemplate = JSON.stringify({
  version: "v2",
  managed: {
    enabled: true,
    override: [{ file_option: "go_package_prefix", value: "agent-sandbox.dev/sdk/internal/gen" }],
  },
  plugins: goPlugins(outputFolders.sdkGo),
});

const typescriptTemplate = JSON.stringify({
  version: "v2",
  plugins: [
    {
      local: "protoc-gen-es",
      out: outputFolders.typescript,
      opt: ["target=ts", "import_extension=ts", "erasable_syntax=true"],
    },
  ],
});

function buf(root: string, args: readonly string[]): void {
  const path = `${join(root, "node_modules/.bin")}:${process.env["PATH"] ?? ""}`;
  execFileSync("buf", ["generate", ...args], {
    cwd: join(root, "spec/proto"),
    env: { ...process.env, PATH: path },
    stdio: ["ignore", "ignore", "inherit"],
  });
}

function compilePython(root: string, out: string): void {
  const proto = join(root, "spec/proto");
  const files = globSync(`${sdkProtos}/**/*.proto`, { cwd: proto }).sort();
  const outs = ["--python_out", "--pyi_out", "--grpc_python_out"].map((flag) => `${flag}=${out}`);
  mkdirSync(out, { recursive: true });
  execFileSync(ensurePython(root), ["-m", "grpc_tools.protoc", "-I", proto, ...outs, ...files], {
    stdio: ["ignore", "ignore", "inherit"],
  });
}

/** A Python that has the pinned protoc plugin: that of set-up where it is there, else an environment of its own in the cache. */
function ensurePython(root: string): string {
  const state = join(root, "node_modules/.agent-sandbox/python");
  if (existsSync(state)) return join(readFileSync(state, "utf8").trim(), "bin/python");
  const [pin = ""] = linesOf(join(root, "scripts/tools/requirements.txt"), grpcToolsPin);
  const cacheHome = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  const cache = process.env["AGENT_SANDBOX_CACHE"] ?? join(cacheHome, "agent-sandbox");
  const venv = join(cache, "grpcio-tools", hash(pin).slice(0, 16));
  const python = join(venv, "bin/python");
  const done = join(venv, "installed");
  if (existsSync(done)) return python;
  execFileSync("python3", ["-m", "venv", "--clear", venv], { stdio: ["ignore", "ignore", "inherit"] });
  execFileSync(python, ["-m", "pip", "install", "--quiet", pin], { stdio: ["ignore", "ignore", "inherit"] });
  writeFileSync(done, "");
  return python;
}

/** Names and imports as the packages need them. */
function finish(file: string, text: string): readonly [string, string] {
  if (file.startsWith(outputFolders.typescript)) {
    return [file.replace(/_pb\.ts$/, ".gen.ts"), text.replaceAll(/(from "\.[^"]*)_pb\.ts"/g, '$1.gen.ts"')];
  }
  if (!file.startsWith(outputFolders.python)) return [file, text];
  return [file, text.replaceAll(/^from agentsandbox\.v1 import/gm, "from agent_sandbox._gen.agentsandbox.v1 import")];
}

function presentStubs(root: string): string[] {
  return Object.values(outputFolders)
    .flatMap((folder) => globSync(`${folder}/**/*.*`, { cwd: root }))
    .filter((path) => !path.includes("__pycache__"))
    .sort();
}

function readLock(root: string): StubsLock | undefined {
  const file = join(root, lockPath);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as StubsLock) : undefined;
}

/** Protos, templates and the pinned versions of everything that turns them into code. */
function hashInputs(root: string): string {
  const proto = join(root, "spec/proto");
  const sources = globSync("**/*.{proto,yaml}", { cwd: proto }).sort();
  const pins = [
    ...linesOf(join(root, "package.json"), /"@bufbuild\//),
    ...linesOf(join(root, "native/go.mod"), /connectrpc\.com\/connect v|google\.golang\.org\/protobuf v/),
    ...linesOf(join(root, "scripts/tools/requirements.txt"), grpcToolsPin),
  ];
  const texts = sources.map((file) => `${file}\n${readFileSync(join(proto, file), "utf8")}`);
  return hash([...texts, ...pins, sdkGoTemplate, typescriptTemplate, sdkProtos, toolProtos].join("\n"));
}

function linesOf(file: string, pattern: RegExp): string[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => pattern.test(line))
    .map((line) => line.replace("// indirect", "").trim());
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
