/**
 * A command in a sandbox through router and sandboxd on a kept connection, next to `kubectl exec` and to a bare spawn inside the
 * same sandbox; and the daemon outside any sandbox next to a bare spawn:
 *
 *   node bench/exec.ts [--rounds=500]
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import { goEnvironment, readSetup, rootDir } from "../scripts/checkout.ts";
import { RealEngine } from "../test/node/real-engine.ts";
import { type Calls, circumstances, type Job, makeSandbox, openCalls, throughRouter } from "./load/engine-calls.ts";
import { record } from "./load/record.ts";
import { cells, quantile } from "./load/samples.ts";

const rounds = Number(process.argv.find((word) => word.startsWith("--rounds="))?.split("=")[1] ?? 500);
/** The rounds of each kind are done in so many turns, so that a slow minute of the machine falls on all of them. */
const turns = 5;
const kubectlRounds = 30;
/** What the way there and back may add to the bare spawn, at the median. */
const addedMsMax = 5;

const execute = {
  method: "POST",
  path: "/process.v1.ProcessService/Execute",
  body: JSON.stringify({ config: { command: ["/bin/true"] } }),
};

/** Asks for next to nothing: what is left is the way there and back. */
const health = { method: "GET", path: "/v1/health" };

/** Spawns and waits, as near to the system calls as an interpreter gets. */
const bareScript = `
import json, os, time
out = []
for i in range(${rounds / turns} + 20):
    began = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    if i >= 20: out.append((time.perf_counter() - began) * 1000)
print(json.dumps(out))
`;

async function bareSpawns(engine: RealEngine): Promise<number[]> {
  const ran = await engine.run("box", ["python3", "-c", bareScript], { timeoutMs: 120_000 });
  return JSON.parse(ran.stdout) as number[];
}

async function calls(client: Calls, job: Job): Promise<readonly number[]> {
  await client.run({ ...job, times: 20 });
  const result = await client.run({ ...job, times: rounds / turns });
  if (result.statuses.join() !== "200") throw new Error(`statuses ${result.statuses.join()}`);
  return result.ms;
}

function kubectlExecs(engine: RealEngine): number[] {
  const [program = ""] = engine.kubectlArgv();
  const config = path.join(engine.dataDir, "pki/admin.kubeconfig");
  return Array.from({ length: kubectlRounds }, () => {
    const startMs = performance.now();
    engine.place.must(program, "--kubeconfig", config, "exec", "box", "--", "/bin/true");
    return performance.now() - startMs;
  });
}

/** The daemon's own measurement, outside any sandbox, with a Go client over gRPC. */
function outside(): string {
  const args = [
    "test",
    "-count=1",
    "-v",
    "-run",
    "TestExecuteNextToABareSpawn|TestStartTimeAndIdleMemory|TestResidentMemoryOfSixHundredCalls|TestBinarySize",
  ];
  const child = spawnSync(readSetup().go, [...args, "./cmd/sandboxd"], {
    cwd: path.join(rootDir, "native"),
    env: goEnvironment(),
    encoding: "utf8",
  });
  const lines = child.stdout.split("\n").filter((line) => /figures_test\.go:\d+:/.test(line));
  return lines.map((line) => `- ${line.replace(/^.*figures_test\.go:\d+: /, "")}`).join("\n");
}

type Kind = "bare" | "dialled" | "routed" | "dialledHealth" | "routedHealth";

const row = (samples: readonly number[]): string => `${cells(samples)} | ${samples.length}`;

const when = circumstances();
const engine = await RealEngine.open("--router-listen", "127.0.0.1:7080");
try {
  const address = await makeSandbox(engine, "box");
  const direct = { url: `http://${address}:49900`, headers: { "Content-Type": "application/json" } };
  await using router = openCalls(engine, throughRouter(engine, "box"));
  await using daemon = openCalls(engine, direct);
  const ms = { bare: [], dialled: [], routed: [], dialledHealth: [], routedHealth: [] } as Record<Kind, number[]>;
  for (let turn = 0; turn < turns; turn += 1) {
    ms.bare.push(...(await bareSpawns(engine)));
    ms.dialled.push(...(await calls(daemon, execute)));
    ms.routed.push(...(await calls(router, execute)));
    ms.dialledHealth.push(...(await calls(daemon, health)));
    ms.routedHealth.push(...(await calls(router, health)));
  }
  const kubectl = kubectlExecs(engine);
  const added = quantile(ms.routed, 0.5) - quantile(ms.bare, 0.5);
  const text = `# Exec

\`/bin/true\` in a gVisor sandbox, milliseconds; ${when}. The client is in the engine's network namespace, has one kept TLS connection to the router, a client certificate, and authorisation on (cached).

| | p50 | p99 | calls |
|---|---|---|---|
| bare spawn inside the sandbox (\`posix_spawn\` and \`waitpid\`) | ${row(ms.bare)} |
| \`Execute\` of sandboxd, dialled directly | ${row(ms.dialled)} |
| \`Execute\` through router and sandboxd | ${row(ms.routed)} |
| \`/v1/health\` of sandboxd, dialled directly | ${row(ms.dialledHealth)} |
| \`/v1/health\` through router and sandboxd | ${row(ms.routedHealth)} |
| \`kubectl exec\` | ${cells(kubectl, 0)} | ${kubectl.length} |

Added to the bare spawn at the median: ${added.toFixed(2)} ms (wanted: under ${addedMsMax}).

sandboxd outside any sandbox (the reference: 1.9 ms p50, 2.9 ms p99, 33 MB, bare spawn 1.1 ms):

${outside()}

Made by \`npm run bench -- exec\`.
`;
  process.stdout.write(text);
  record("exec", text);
  if (added >= addedMsMax) process.exitCode = 1;
} finally {
  await engine[Symbol.asyncDispose]();
}
