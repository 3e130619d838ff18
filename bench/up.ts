// How long `agent-sandbox up` takes until `kubectl get ns` answers, with a data directory of its own that is new, and again
// with one that was used. Needs root: it starts engines, in a namespace with nothing but loopback.
//
//   node bench/up.ts
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg } from "node:os";
import path from "node:path";
import { layoutOf } from "../packages/server/src/main/layout.ts";
import { rootDir } from "../scripts/checkout.ts";
import { programPath } from "../test/cluster/programs.ts";
import { TestNamespace } from "../test/node/namespace.ts";

const rounds = 7;
/** The promise: a start with nothing to set up. */
const targetMs = 1_500;
/** Between two looks at the file and two tries of kubectl. */
const lookEveryMs = 5;

interface Start {
  /** Until the kubeconfig is there, and until kubectl has printed the namespaces. */
  readonly kubeconfigMs: number;
  readonly answerMs: number;
}

async function start(place: TestNamespace, dataDir: string, kubeconfig: string): Promise<Start> {
  rmSync(kubeconfig, { force: true });
  const startMs = performance.now();
  const command = path.join(rootDir, "agent-sandbox");
  const listen = ["--listen", "127.0.0.1:7443", "--kubeconfig-out", kubeconfig];
  const [program, args] = place.inside(command, "up", "--data-dir", dataDir, ...listen);
  const engine = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(engine, "exit");
  while (!existsSync(kubeconfig)) await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  const kubeconfigMs = performance.now() - startMs;
  while (place.run([programPath("kubectl"), "--kubeconfig", kubeconfig, "get", "ns"]).status !== 0)
    await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  const answerMs = performance.now() - startMs;
  // The API answers before the engine is complete, and only a complete one is found by `down`.
  while (place.run(["cat", layoutOf(dataDir).recordFile]).status !== 0)
    await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  place.must(command, "down", "--data-dir", dataDir);
  await ended;
  return { kubeconfigMs, answerMs };
}

function row(name: string, starts: readonly Start[]): string {
  const median = (values: readonly number[]): string =>
    values.toSorted((a, b) => a - b)[values.length >> 1]?.toFixed(0) ?? "";
  const answers = starts.map(({ answerMs }) => answerMs);
  const kubeconfigs = starts.map(({ kubeconfigMs }) => kubeconfigMs);
  return `| ${name} | ${median(kubeconfigs)} | ${median(answers)} | ${Math.max(...answers).toFixed(0)} |`;
}

const load = loadavg().map((value) => value.toFixed(2));
const work = mkdtempSync("/tmp/as-bench-up-");
await using place = await TestNamespace.open();
const [fresh, used]: [Start[], Start[]] = [[], []];
try {
  for (let round = 0; round < rounds; round += 1) {
    // Beside the working directory, which only root may enter: the engine gives root up.
    const dataDir = `${work}-data-${round}`;
    const kubeconfig = path.join(work, `kubeconfig-${round}`);
    fresh.push(await start(place, dataDir, kubeconfig));
    used.push(await start(place, dataDir, kubeconfig));
    place.must(path.join(rootDir, "agent-sandbox"), "down", "--purge", "--data-dir", dataDir);
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
process.stdout.write(
  [
    `\`agent-sandbox up\` until \`kubectl get ns\` answers; ${rounds} rounds, milliseconds; target ${targetMs}. Load average before the run: ${load.join(" ")}.`,
    "",
    "| data directory | kubeconfig written, p50 | answer, p50 | answer, slowest |",
    "|---|---|---|---|",
    row("new", fresh),
    row("used", used),
    "",
  ].join("\n"),
);
