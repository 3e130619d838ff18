import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Output } from "./output.ts";

/** What the committed stubs were made from and what came out; comparing hashes needs none of the compilers. */
interface StubsLock {
  readonly inputs: string;
  readonly outputs: Readonly<Record<string, string>>;
}

const lockPath = "spec/proto/stubs.json";
/**
 * Folders that hold nothing but stubs: each service once per language, where it is used. The TypeScript and Python SDKs
 * encode their few messages by hand and have none.
 */
const outputFolders = {
  /** `agentsandbox.v1`, for the Go SDK and for native/, which imports it from there. */
  sdkGo: "sdks/go/protocol",
  /** The services that only the daemon serves. */
  nativeGo: "native/internal/gen",
  typescript: "packages/server/src/node/proto",
};
/**
 * The Go SDK carries stubs of our own service only: Go's protobuf registry is process-wide, and a program that also loads
 * the published client, which brings process.v1, must not fail because of us.
 */
const sdkProtos = "agentsandbox";
/** All that TypeScript has a generated client for: the node's connection to the daemon. */
const nodeProto = "agentsandbox/v1/process.proto";

/** Makes the stubs of spec/proto for TypeScript and Go, unless the committed ones are what would come out. */
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
    buf(root, ["--template", "buf.gen.yaml", "--exclude-path", sdkProtos, "-o", join(scratch, "a/b")]);
    buf(root, ["--template", sdkGoTemplate, "--path", sdkProtos, "-o", scratch]);
    buf(root, ["--template", typescriptTemplate, "--path", nodeProto, "-o", scratch]);
    const made = new Map<string, string>();
    for (const folder of Object.values(outputFolders)) {
      for (const file of globSync(`${folder}/**/*.*`, { cwd: scratch }).sort()) {
        const text = readFileSync(join(scratch, file), "utf8");
        const [path, content] = finish(file, text);
        made.set(path, content);
      }
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
    override: [{ file_option: "go_package_prefix", value: "agent-sandbox.dev/sdk/protocol" }],
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

/** The one TypeScript file lies without the folders of its package, under the name of a generated one. */
function finish(file: string, text: string): readonly [string, string] {
  if (!file.startsWith(outputFolders.typescript)) return [file, text];
  return [`${outputFolders.typescript}/${basename(file).replace(/_pb\.ts$/, ".gen.ts")}`, text];
}

function presentStubs(root: string): string[] {
  return Object.values(outputFolders)
    .flatMap((folder) => globSync(`${folder}/**/*.*`, { cwd: root }))
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
  ];
  const texts = sources.map((file) => `${file}\n${readFileSync(join(proto, file), "utf8")}`);
  return hash([...texts, ...pins, sdkGoTemplate, typescriptTemplate, sdkProtos, nodeProto].join("\n"));
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
