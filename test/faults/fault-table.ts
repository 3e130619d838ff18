import type { Target } from "./fault-targets.ts";
import type { Outcome, Phase } from "./protocol.ts";

/** What one language got when something was killed under its call. */
export interface Reading {
  readonly target: Target;
  readonly phase: Phase;
  readonly language: string;
  readonly outcome: Outcome;
  /** From the kill to the call's end. */
  readonly seconds: number;
}

/** What the caller got, in few words. */
function shown({ kind, code, text }: Outcome): string {
  const words = text.length > 60 ? `${text.slice(0, 57)}...` : text;
  return kind === "error" ? `\`${code}\`` : kind === "result" ? `result: ${words}` : kind;
}

/** The table for people: a row per target and phase, a column per language. */
export function renderTable(readings: readonly Reading[]): string {
  const languages = [...new Set(readings.map(({ language }) => language))];
  const rows = new Map<string, Reading[]>();
  for (const reading of readings) {
    const key = `| ${reading.target} | ${reading.phase} |`;
    rows.set(key, [...(rows.get(key) ?? []), reading]);
  }
  const lines = [...rows].map(([key, row]) => {
    const cells = languages.map((language) => {
      const reading = row.find((one) => one.language === language);
      return reading === undefined ? "" : `${shown(reading.outcome)}, ${reading.seconds.toFixed(1)} s`;
    });
    return `${key} ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  });
  const head = `| killed | phase | ${languages.join(" | ")} |`;
  return [head, `|---|---|${languages.map(() => "---|").join("")}`, ...lines].join("\n");
}
