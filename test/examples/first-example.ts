import { copyFile, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { rootDir } from "../../scripts/checkout.ts";
import type { ExampleEngine, Outcome } from "./engine.ts";

/** A README whose first example must run as it is printed. */
export interface FirstExample {
  readonly readme: string;
  /** The language of the block. */
  readonly fence: "ts" | "python" | "go";
  readonly file: string;
  readonly argv: readonly string[];
  readonly prints: RegExp;
}

/** The three SDKs. */
export const firstExamples: readonly FirstExample[] = [
  {
    readme: "packages/sdk/README.md",
    fence: "ts",
    file: "example.ts",
    argv: ["node", "example.ts"],
    prints: /^hello from Linux\n+$/,
  },
  {
    readme: "sdks/python/README.md",
    fence: "python",
    file: "example.py",
    argv: ["python", "example.py"],
    prints: /^hello from \S+\n+$/,
  },
  { readme: "sdks/go/README.md", fence: "go", file: "main.go", argv: ["go", "run", "."], prints: /^hello\n<nil>\n$/ },
];

const exampleTimeoutMs = 110_000;

/** Runs the first block of a README, untouched, in an empty directory where only the SDK is installed. */
export async function runFirstExample(engine: ExampleEngine, example: FirstExample): Promise<Outcome> {
  const dir = await mkdtemp(path.join(os.tmpdir(), "first-example-"));
  try {
    const readme = await readFile(path.join(rootDir, example.readme), "utf8");
    await writeFile(path.join(dir, example.file), firstBlock(readme, example.fence));
    await installSdk(dir, example.fence);
    return await engine.run(example.argv, { cwd: dir, timeoutMs: exampleTimeoutMs });
  } finally {
    await rm(dir, { recursive: true });
  }
}

function firstBlock(readme: string, fence: string): string {
  const [, language, block] = /^```(\w+)\n([\s\S]*?)^```$/m.exec(readme) ?? [];
  if (language !== fence || block === undefined) throw new Error(`the first block is ${language}, not ${fence}`);
  return block;
}

/** What `npm install`, `pip install` and `go get` would do, from this checkout. */
async function installSdk(dir: string, fence: FirstExample["fence"]): Promise<void> {
  if (fence === "ts") {
    await symlink(path.join(rootDir, "node_modules"), path.join(dir, "node_modules"));
    await writeFile(path.join(dir, "package.json"), '{ "type": "module" }\n');
  }
  if (fence === "go") {
    const place = path.join(rootDir, "examples/warm-pool");
    const module = await readFile(path.join(place, "go.mod"), "utf8");
    await writeFile(path.join(dir, "go.mod"), module.replace("../../sdks/go", path.join(rootDir, "sdks/go")));
    await copyFile(path.join(place, "go.sum"), path.join(dir, "go.sum"));
  }
}
