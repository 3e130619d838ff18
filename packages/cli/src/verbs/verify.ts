import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { exitCodes } from "../exit-codes.ts";
import { Progress } from "../output/progress.ts";
import { openGround } from "../verify/open-ground.ts";
import { probes } from "../verify/probes/probes.ts";
import { formatReport, type Report, reportOf } from "../verify/report.ts";
import { runProbes } from "../verify/run-probes.ts";

interface VerifyFlags extends EngineFlags {
  readonly image?: string;
  readonly runtime?: string;
  readonly template?: string;
  readonly output?: "json";
}

/** Tries to leave sandboxes of this engine, and says what held. */
export const verifyVerb: Verb = async (context, _args, flags) => {
  const report = await verify(context, flags as VerifyFlags);
  const { output } = flags as VerifyFlags;
  context.stdout.write(output === "json" ? `${JSON.stringify(report, null, 2)}\n` : formatReport(report, context));
  return report.sound ? exitCodes.ok : exitCodes.unsound;
};

async function verify(context: Context, flags: VerifyFlags): Promise<Report> {
  const { signal, nowMs } = context;
  using progress = new Progress(context);
  const onProgress = (text: string): void => progress.show(`${text} ...`);
  const startedMs = nowMs();
  const engine = await openEngine(flags);
  await using stack = new AsyncDisposableStack();
  stack.defer(() => engine.close());
  const { namespace, image, runtime, template } = flags;
  const dataDir = dataDirOf(flags, context);
  const ground = await openGround({ engine, dataDir, namespace, image, runtime, template, onProgress, signal }, stack);
  const findings = await runProbes(probes, ground, { signal, onProgress });
  const { readVersion } = await import("@agent-sandbox/server/main/version");
  const { gitVersion = "unknown" } = await engine.client.raw<{ gitVersion?: string }>({
    method: "GET",
    path: "/version",
  });
  const versions = {
    agentSandbox: readVersion(),
    engine: gitVersion,
    kernel: ground.nodeKernel ?? "unknown",
    node: process.version,
    runtimes: ground.runtimes,
  };
  return reportOf(findings, { startedMs, endedMs: nowMs(), versions });
}
