import { Command } from "commander";
import type { Verb } from "./context.ts";
import { groups, type VerbDefinition } from "./definitions/definitions.ts";
import { didYouMean } from "./did-you-mean.ts";

/** Runs one verb. */
export type VerbRunner = (verb: Verb, args: readonly string[], flags: Record<string, unknown>) => Promise<void>;

/**
 * Makes the command tree from the definitions; no verb is loaded before it runs. Where the first word of the command line
 * is a verb, the tree has that one alone: making them all takes longer than many a verb runs.
 */
export function createProgram(run: VerbRunner, firstWord?: string): Command {
  const program = new Command("agent-sandbox")
    .description("Isolated, stateful Linux environments for agents, on this machine or on a Kubernetes cluster.")
    .usage("<verb> [flags] [arguments]")
    .option("-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [verb]", "show help of a verb")
    .enablePositionalOptions()
    .exitOverride()
    .showSuggestionAfterError(true)
    .addHelpText("after", helpFooter);
  const only = groups.flatMap(({ verbs }) => verbs).find(({ name }) => name === firstWord);
  for (const { title, verbs } of only === undefined ? groups : [{ title: "Verbs", verbs: [only] }]) {
    program.commandsGroup(`${title}:`);
    for (const definition of verbs) addVerb(program, definition, run);
  }
  program.argument("[verb]").action((word?: string) => {
    if (word === undefined) return program.outputHelp();
    const names = program.commands.map((command) => command.name());
    return program.error(`error: unknown verb '${word}'${didYouMean(word, names)}`);
  });
  program.allowExcessArguments();
  return program;
}

const helpFooter = `
Which engine: --kubeconfig/--context; AGENT_SANDBOX_KUBECONFIG/AGENT_SANDBOX_CONTEXT; the cluster this runs in;
the engine of this machine, which 'run' starts where none runs.

Example:
  agent-sandbox run -- echo hello`;

function addVerb(parent: Command, definition: VerbDefinition, run: VerbRunner): void {
  const { name, summary, args = "", flags = [], passThrough = false, verbs = [], load, examples = [] } = definition;
  const command = parent.command(args === "" ? name : `${name} ${args}`).description(summary);
  // The parent's settings are not taken over by commands that exist before them.
  command.exitOverride().helpOption("-h, --help", "show help").showSuggestionAfterError(true);
  for (const { flag, text, value, choices, repeat } of flags) {
    const option = command.createOption(flag, text);
    if (choices !== undefined) option.choices(choices);
    if (value !== undefined) option.default(value);
    if (repeat === true) option.argParser((next: string, all: string[] | undefined) => [...(all ?? []), next]);
    command.addOption(option);
  }
  if (passThrough) command.passThroughOptions();
  if (definition.isOpaque === true) command.allowUnknownOption().helpOption(false);
  if (examples.length > 0)
    command.addHelpText("after", `\nExamples:\n${examples.map((line) => `  ${line}`).join("\n")}`);
  for (const child of verbs) addVerb(command, child, run);
  if (load === undefined) return;
  command.action(async () => {
    await run(await load(), command.args, command.opts());
  });
}
