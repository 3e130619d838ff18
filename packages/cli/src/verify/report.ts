import { type Context, hasColour } from "../context.ts";
import { type Finding, isSound } from "./probe.ts";

/** What a run is worth without: which versions it was about, and when. */
export interface Report {
  readonly startedAt: string;
  readonly durationMs: number;
  /** Everything that was tried held, and every control worked. */
  readonly sound: boolean;
  readonly versions: {
    readonly agentSandbox: string;
    readonly engine: string;
    readonly kernel: string;
    readonly node: string;
    readonly runtimes: Readonly<Record<string, string>>;
  };
  readonly findings: readonly Finding[];
}

/** Makes the report. */
export function reportOf(
  findings: readonly Finding[],
  { startedMs, endedMs, versions }: { startedMs: number; endedMs: number; versions: Report["versions"] },
): Report {
  return {
    startedAt: new Date(startedMs).toISOString(),
    durationMs: Math.round(endedMs - startedMs),
    sound: isSound(findings),
    versions,
    findings,
  };
}

const words = { held: ["held", 32], broken: ["BROKEN", 31], "not-applicable": ["n/a", 33] } as const;

/** The report as a table for people. */
export function formatReport(report: Report, { stdout, env }: Pick<Context, "stdout" | "env">): string {
  const isColoured = hasColour(stdout, env);
  const idWidth = Math.max(...report.findings.map(({ id }) => id.length));
  const lines = report.findings.map(({ id, tries, result, control, detail }) => {
    const [word, colour] = words[result];
    const mark = isColoured ? `\x1b[${colour}m${word.padEnd(7)}\x1b[39m` : word.padEnd(7);
    // Some of it was said by a sandbox, which must not speak to the terminal.
    const note = detail === "" ? "" : `: ${detail.replace(/\p{Cc}/gu, " ")}`;
    return `${mark} ${id.padEnd(idWidth)}  control ${control.padEnd(6)}  ${tries}${note}`;
  });
  return `${lines.join("\n")}\n\n${summary(report)}\n`;
}

function summary({ findings, sound, durationMs, versions }: Report): string {
  const count = (result: Finding["result"]): number => findings.filter((finding) => finding.result === result).length;
  const failed = findings.filter(({ control }) => control === "failed").length;
  const counts = [
    `${count("held")} held`,
    `${count("broken")} broken`,
    `${count("not-applicable")} not applicable`,
    `${failed} without a working control`,
  ];
  const runtimes = Object.entries(versions.runtimes).map(([name, version]) => `${name} ${version}`);
  const about = [
    `agent-sandbox ${versions.agentSandbox}`,
    ...runtimes,
    `Linux ${versions.kernel}`,
    `Node ${versions.node}`,
  ];
  const verdict = sound ? "sound" : "NOT SOUND";
  return `${verdict}: ${counts.join(", ")} in ${(durationMs / 1000).toFixed(1)} s\n${about.join(", ")}`;
}
