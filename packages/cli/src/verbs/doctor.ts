import type { Context, Verb } from "../context.ts";
import { hasColour } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import type { Check, Finding } from "../doctor/check.ts";
import { engineChecks } from "../doctor/engine-checks.ts";
import { hostChecks } from "../doctor/host-checks.ts";
import { exitCodeOfEngineError, exitCodes } from "../exit-codes.ts";
import { Progress } from "../output/progress.ts";
import { isEngineError } from "../report-error.ts";
import { unguarded } from "../terminal/harmless.ts";

/** Tests what works on this machine: host first, then an engine, then a sandbox per runtime tier. */
export const doctorVerb: Verb = async (context, _args, flags) => {
  const { dataDir, fix = false, output } = flags as { dataDir?: string; fix?: boolean; output?: "json" };
  const question = { context, dataDir: dataDirOf(dataDir === undefined ? {} : { dataDir }, context) };
  const findings: Finding[] = [];
  for (const check of [...(await hostChecks(question)), ...engineChecks]) {
    const finding = await runCheck(check, question, { fix, context });
    findings.push(finding);
    if (output === undefined) print(context, finding);
  }
  if (output === "json") context.stdout.write(`${JSON.stringify(findings, null, 2)}\n`);
  // What is broken further down is often broken for the first one's reason.
  const first = findings.find(({ verdict }) => verdict === "broken");
  return first === undefined ? exitCodes.ok : exitCodeOfEngineError(first.code ?? "failed");
};

async function runCheck(
  check: Check,
  question: Parameters<Check["look"]>[0],
  options: { fix: boolean; context: Context },
): Promise<Finding> {
  using progress = new Progress(options.context);
  progress.show(`${check.title} ...`);
  const first = await look(check, question);
  if (first.verdict === "ok" || !options.fix || check.mend === undefined) return first;
  progress.show(`${check.title}: mending ...`);
  try {
    await check.mend(question);
  } catch (error) {
    return {
      ...first,
      detail: `${first.detail}; mending failed: ${error instanceof Error ? error.message : String(error)}`,
    };
  }
  const second = await look(check, question);
  return second.verdict === "ok" ? { ...second, detail: `${second.detail} (mended)` } : second;
}

async function look(check: Check, question: Parameters<Check["look"]>[0]): Promise<Finding> {
  const startedMs = performance.now();
  const result = await check.look(question).catch((error: unknown) => ({
    verdict: "broken" as const,
    detail: error instanceof Error ? error.message : String(error),
    ...(isEngineError(error) && { code: error.code }),
  }));
  return { title: check.title, durationMs: Math.round(performance.now() - startedMs), ...result };
}

const marks = { ok: ["ok", 32], warning: ["warning", 33], broken: ["broken", 31] } as const;

function print({ stdout, env }: Context, { title, verdict, detail, advice }: Finding): void {
  const [word, colour] = marks[verdict];
  const mark = hasColour(stdout, env) ? `\x1b[${colour}m${word.padEnd(8)}\x1b[39m` : word.padEnd(8);
  unguarded(stdout).write(mark);
  stdout.write(` ${title.padEnd(26)} ${detail}\n`);
  if (verdict !== "ok" && advice !== undefined)
    stdout.write(`${" ".repeat(9)}${advice[0]?.toUpperCase()}${advice.slice(1)}\n`);
}
