// What starting costs: an import of each SDK, and small commands, each beside a bare interpreter in the same rounds; then how fast
// the output of a command arrives. Needs root: it starts an engine of its own.
//
//   node bench/startup.ts [--starts-only]
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import path from "node:path";
import { ExampleEngine } from "../test/examples/engine.ts";
import { useCompileCache } from "./load/compile-cache.ts";
import { quantile } from "./load/samples.ts";

const rounds = 25;
const streamBytes = 100 * 2 ** 20;
const scratch = mkdtempSync(path.join(tmpdir(), "bench-startup-"));
const rootDir = path.join(import.meta.dirname, "..");

interface Case {
  readonly name: string;
  readonly argv: readonly string[];
  /** The name of the case that it is compared with: the interpreter that starts and does nothing. */
  readonly bare?: string;
}

function write(name: string, text: string): string {
  const file = path.join(scratch, name);
  writeFileSync(file, text);
  return file;
}

function cases(): readonly Case[] {
  const typescript = write(
    "import.ts",
    `import { Sandbox } from "${rootDir}/packages/sdk/src/index.ts"; void Sandbox;\n`,
  );
  return [
    { name: "node -e 0", argv: ["node", "-e", "0"] },
    { name: "import the TypeScript SDK", argv: ["node", typescript], bare: "node -e 0" },
    { name: "python -c pass", argv: ["python", "-c", "pass"] },
    {
      name: "import the Python SDK",
      argv: ["python", "-c", "from agent_sandbox_sdk import Sandbox"],
      bare: "python -c pass",
    },
    {
      name: "import the Python SDK's async twin",
      argv: ["python", "-c", "from agent_sandbox_sdk import AsyncSandbox"],
      bare: "python -c pass",
    },
    {
      name: "import the Python SDK and its errors",
      argv: ["python", "-c", "from agent_sandbox_sdk import Sandbox, SandboxError, Volume"],
      bare: "python -c pass",
    },
    { name: "agent-sandbox --version", argv: ["agent-sandbox", "--version"], bare: "node -e 0" },
    { name: "agent-sandbox ls", argv: ["agent-sandbox", "ls"], bare: "node -e 0" },
  ];
}

/** What one start took: by the clock, and of processor time, which depends less on what else runs. */
interface Cost {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** The shell's own `time` measures the child alone. */
const timed = 'TIMEFORMAT="%R %U %S"; { time "$@" >/dev/null 2>&3; } 3>/dev/null';

function costOf(argv: readonly string[], env: NodeJS.ProcessEnv): Cost {
  const { status, stderr } = spawnSync("bash", ["-c", timed, "bash", ...argv], { env, encoding: "utf8" });
  if (status !== 0) throw new Error(`${argv.join(" ")} ended with ${status}`);
  const [wall = 0, user = 0, system = 0] = stderr.trim().split(" ").map(Number);
  return { wallMs: wall * 1000, cpuMs: (user + system) * 1000 };
}

/** Every case once per round, so that all of them meet the same load. */
function measure(all: readonly Case[], env: NodeJS.ProcessEnv): Map<string, Cost[]> {
  const costs = new Map(all.map(({ name }) => [name, [] as Cost[]]));
  for (const { argv } of all) costOf(argv, env);
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, argv } of all) costs.get(name)?.push(costOf(argv, env));
  }
  return costs;
}

function printStartup(all: readonly Case[], costs: ReadonlyMap<string, readonly Cost[]>): void {
  const columns = ["what", "best ms", "median ms", "of bare", "processor ms, median", "of bare"];
  process.stdout.write(`| ${columns.join(" | ")} |\n|${" --- |".repeat(columns.length)}\n`);
  for (const { name, bare } of all) {
    const of = (key: keyof Cost, part: number, whose = name): number =>
      quantile(
        (costs.get(whose) ?? []).map((cost) => cost[key]),
        part,
      );
    const ratio = (key: keyof Cost): string =>
      bare === undefined ? "" : `${(of(key, 0.5) / of(key, 0.5, bare)).toFixed(2)} x`;
    const figures = [of("wallMs", 0).toFixed(0), of("wallMs", 0.5).toFixed(0), ratio("wallMs")];
    process.stdout.write(`| ${[name, ...figures, of("cpuMs", 0.5).toFixed(0), ratio("cpuMs")].join(" | ")} |\n`);
  }
}

/** What prints 100 MiB: a program that writes large blocks, and one that writes 8 KiB at a time. */
const printers = [
  `dd if=/dev/zero bs=1M count=${streamBytes / 2 ** 20} 2>/dev/null`,
  `head -c ${streamBytes} /dev/zero`,
];

const streamers: readonly { readonly name: string; readonly file: string; readonly text: string }[] = [
  {
    name: "TypeScript",
    file: "stream.ts",
    text: `import { Sandbox } from "${rootDir}/packages/sdk/src/index.ts";
await using box = await Sandbox.create();
for (const command of ${JSON.stringify(printers)}) {
  const startMs = performance.now();
  const { stdoutBytes } = await box.run(command);
  console.log(stdoutBytes.length / 1e3 / (performance.now() - startMs));
}
const startMs = performance.now();
await box.run(${JSON.stringify(`${printers[1]} | cat > /dev/null`)});
console.log(${streamBytes} / 1e3 / (performance.now() - startMs));
`,
  },
  {
    name: "Python",
    file: "stream.py",
    text: `import time
from agent_sandbox_sdk import Sandbox
with Sandbox.create() as box:
    for command in ${JSON.stringify(printers)}:
        start = time.perf_counter()
        size = len(box.run(command).stdout_bytes)
        print(size / 1e6 / (time.perf_counter() - start))
`,
  },
];

async function printStreams(engine: ExampleEngine): Promise<void> {
  const columns = [
    "100 MiB of output through",
    "blocks of 1 MiB, MB/s",
    "blocks of 8 KiB, MB/s",
    "8 KiB to a pipe inside, MB/s",
  ];
  process.stdout.write(`\n| ${columns.join(" | ")} |\n|${" --- |".repeat(columns.length)}\n`);
  for (const { name, file, text } of streamers) {
    const interpreter = file.endsWith(".py") ? "python" : "node";
    const { exitCode, stdout, stderr } = await engine.run([interpreter, write(file, text)], { timeoutMs: 300_000 });
    if (exitCode !== 0) throw new Error(stderr);
    const figures = stdout
      .trim()
      .split("\n")
      .map((line) => Number(line).toFixed(0));
    process.stdout.write(`| ${[name, ...figures, "", ""].slice(0, columns.length).join(" | ")} |\n`);
  }
}

const engine = await ExampleEngine.start();
try {
  // The launcher's own cache, so that the SDK is measured as warm as the command is.
  useCompileCache();
  const env = {
    ...engine.env,
    NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
    // Bytecode as an installed package has it, whatever this shell says of it.
    PYTHONDONTWRITEBYTECODE: "",
    PYTHONPYCACHEPREFIX: path.join(scratch, "pycache"),
  };
  const all = cases();
  process.stdout.write(`load average ${loadavg()[0]?.toFixed(1)}, ${rounds} rounds, warm\n\n`);
  printStartup(all, measure(all, env));
  if (!process.argv.includes("--starts-only")) await printStreams(engine);
} finally {
  await engine[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true });
}
