import type { Verb } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import type { VerbDefinition, VerbGroup } from "../verb-definition.ts";

/** Prints the manual page, made from the same definitions as the parser. */
export function manVerb(groups: readonly VerbGroup[]): Verb {
  return async ({ stdout }) => void stdout.write(manualPage(groups));
}

/** The manual page in troff. */
export function manualPage(groups: readonly VerbGroup[]): string {
  const verbs = groups.flatMap(({ title, verbs: members }) => [
    `.SS ${title}`,
    ...members.flatMap((member) => verbLines(member, "")),
  ]);
  const codes = Object.entries(exitCodes).flatMap(([name, code]) => [
    ".TP",
    `.B ${code}`,
    escapeText(name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)),
  ]);
  return [
    ".TH AGENT-SANDBOX 1",
    ".SH NAME",
    "agent-sandbox \\- isolated, stateful Linux environments for agents",
    ".SH SYNOPSIS",
    ".B agent-sandbox",
    ".I verb",
    "[flags] [arguments]",
    ".SH VERBS",
    ...verbs,
    ".SH EXIT STATUS",
    ...codes,
    "",
  ].join("\n");
}

function verbLines(
  { name, summary, args = "", flags = [], verbs = [], examples = [] }: VerbDefinition,
  prefix: string,
): string[] {
  const path = `${prefix}${name}`;
  const options = flags.flatMap(({ flag, text }) => [".RS", ".TP", `.B ${escapeText(flag)}`, escapeText(text), ".RE"]);
  const shown = examples.flatMap((example) => [".RS", ".nf", escapeText(example), ".fi", ".RE"]);
  const own = [".TP", `.B ${escapeText(`${path} ${args}`.trim())}`, escapeText(summary), ...options, ...shown];
  return [...own, ...verbs.flatMap((child) => verbLines(child, `${path} `))];
}

/** Backslashes, hyphens and a leading dot mean something to troff. */
function escapeText(text: string): string {
  return text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replace(/^([.'])/, "\\&$1");
}
