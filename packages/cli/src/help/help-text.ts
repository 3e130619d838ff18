import { groups } from "../definitions/definitions.ts";
import { shortUsageOf, usageOf } from "../parsing/usage.ts";
import type { FlagDefinition, VerbDefinition } from "../verb-definition.ts";
import { type Entry, formatEntries, termWidthOf, wrapText } from "./layout.ts";

/** Entries under a title. */
interface Section {
  readonly title: string;
  readonly entries: readonly Entry[];
}

/** The help of a verb, or of the command where the path is empty; no explanation is wider than `width` if that can be. */
export function helpText(path: readonly VerbDefinition[], width: number): string {
  const verb = path.at(-1);
  return [
    `Usage: ${usageOf(path)}\n`,
    `${wrapText(verb?.summary ?? description, width).join("\n")}\n`,
    ...formatSections(verb === undefined ? programSections() : verbSections(verb), width),
    verb === undefined ? footer : examplesOf(verb),
  ]
    .filter((part) => part !== "")
    .join("\n");
}

const description = "Isolated, stateful Linux environments for agents, on this machine or on a Kubernetes cluster.";

const footer = `Which engine: --kubeconfig/--context; AGENT_SANDBOX_KUBECONFIG/AGENT_SANDBOX_CONTEXT; the cluster this runs in;
the engine of this machine, which 'run' starts where none runs.

Example:
  agent-sandbox run -- echo hello
`;

const helpFlag: Entry = { term: "-h, --help", text: "show help" };
const helpVerb: Entry = { term: "help [verb]", text: "show help of a verb" };

function programSections(): Section[] {
  const verbs = groups.map(({ title, verbs: members }) => ({ title, entries: members.map(verbEntry) }));
  return [
    { title: "Flags", entries: [{ term: "-V, --version", text: "print the version" }, helpFlag] },
    ...verbs,
    { title: "Help", entries: [helpVerb] },
  ];
}

function verbSections({ flags = [], verbs, isOpaque = false }: VerbDefinition): Section[] {
  // A verb that reads its arguments itself gets this flag, too.
  const own = isOpaque ? [] : [...flags.map(flagEntry), helpFlag];
  const members = verbs === undefined ? [] : [...verbs.map(verbEntry), helpVerb];
  return [
    { title: "Flags", entries: own },
    { title: "Verbs", entries: members },
  ].filter(({ entries }) => entries.length > 0);
}

function formatSections(sections: readonly Section[], width: number): string[] {
  const termWidth = termWidthOf(sections.flatMap(({ entries }) => entries));
  return sections.map(({ title, entries }) => `${title}:\n${formatEntries(entries, { width, termWidth })}`);
}

function verbEntry(verb: VerbDefinition): Entry {
  return { term: shortUsageOf(verb), text: verb.summary };
}

function flagEntry({ flag, text, choices, value, repeat = false }: FlagDefinition): Entry {
  const limits = [
    ...(repeat ? ["may be repeated"] : []),
    ...(choices === undefined ? [] : [`choices: ${choices.join(", ")}`]),
    ...(value === undefined ? [] : [`default: ${value}`]),
  ];
  return { term: flag, text: limits.length === 0 ? text : `${text} (${limits.join("; ")})` };
}

function examplesOf({ examples = [] }: VerbDefinition): string {
  return examples.length === 0 ? "" : `Examples:\n${examples.map((line) => `  ${line}\n`).join("")}`;
}
