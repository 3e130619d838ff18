import { usageError } from "../cli-error.ts";
import { type Context, required, type Verb } from "../context.ts";
import { readFlag } from "../flag-notation.ts";
import type { VerbDefinition, VerbGroup } from "../verb-definition.ts";

/** Prints a completion script made from the same definitions as the parser. */
export function completionVerb(groups: Groups): Verb {
  return async (context, args) => {
    const shell = required(args, 0, "shell");
    const make = { bash, zsh, fish }[shell];
    if (make === undefined) throw usageError(`no completion for '${shell}'; choose bash, zsh or fish`);
    print(context, make(groups));
  };
}

type Groups = readonly VerbGroup[];

function print({ stdout }: Context, text: string): void {
  stdout.write(text);
}

/** Words that complete a path of verbs: `""` for the verbs themselves, `image` for its own verbs and flags. */
export function completionWords(groups: Groups): Map<string, string[]> {
  const words = new Map<string, string[]>();
  const all = groups.flatMap(({ verbs }) => verbs);
  words.set(
    "",
    all.map(({ name }) => name),
  );
  const add = (definition: VerbDefinition, prefix: string): void => {
    const key = `${prefix}${definition.name}`;
    const flags = (definition.flags ?? []).map((flag) => readFlag(flag).long);
    words.set(key, [...(definition.verbs ?? []).map(({ name }) => name), ...flags, "--help"]);
    for (const child of definition.verbs ?? []) add(child, `${key} `);
  };
  for (const definition of all) add(definition, "");
  return words;
}

/** Flags that take the word behind them. */
function valueFlags(groups: Groups): string[] {
  const all = groups.flatMap(({ verbs }) => verbs).flatMap((verb) => [verb, ...(verb.verbs ?? [])]);
  const valued = all
    .flatMap(({ flags = [] }) => flags.map(readFlag))
    .filter(({ valueName }) => valueName !== undefined);
  return [...new Set(valued.flatMap(({ short, long }) => (short === undefined ? [long] : [short, long])))];
}

/** Verbs whose first argument is a sandbox. */
const takesSandbox = "exec|shell|logs|cp|describe|suspend|resume|delete|open|port-forward|get";

const listSandboxes = "agent-sandbox ls -o name 2>/dev/null | sed 's#.*/##'";

// No variable of it is called `path` or `words`: both are special in zsh, which runs the same function.
function bash(groups: Groups): string {
  const cases = [...completionWords(groups)]
    .map(([key, words]) => `    "${key}") choices="${words.join(" ")}" ;;`)
    .join("\n");
  return `# bash completion of agent-sandbox: source <(agent-sandbox completion bash)
_agent_sandbox() {
  local current="\${COMP_WORDS[COMP_CWORD]}" verb="" word choices="" names="" skip=""
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    if [ -n "$skip" ]; then skip=""; continue; fi
    case "$word" in ${valueFlags(groups).join("|")}) skip=1; continue ;; -*) continue ;; esac
    case "$verb" in "") verb="$word" ;; image|pool|template) verb="$verb $word" ;; esac
  done
  case "$verb" in
${cases}
  esac
  case "$verb" in ${takesSandbox}) case "$current" in -*) ;; *) names="$(${listSandboxes})" ;; esac ;; esac
  COMPREPLY=($(compgen -W "$choices $names" -- "$current"))
}
complete -o default -F _agent_sandbox agent-sandbox
`;
}

function zsh(groups: Groups): string {
  return `#compdef agent-sandbox
# zsh completion of agent-sandbox: source <(agent-sandbox completion zsh)
autoload -U +X bashcompinit && bashcompinit
${bash(groups)}`;
}

function fish(groups: Groups): string {
  const all = groups.flatMap(({ verbs }) => verbs);
  const quote = (text: string): string => `'${text.replaceAll("'", "\\'")}'`;
  const lines = all.flatMap((definition) => fishLines(definition, "__fish_use_subcommand", quote));
  const sandboxes = takesSandbox.replaceAll("|", " ");
  return `# fish completion of agent-sandbox: agent-sandbox completion fish | source
complete -c agent-sandbox -f
${lines.join("\n")}
complete -c agent-sandbox -n '__fish_seen_subcommand_from ${sandboxes}' -a ${quote(`(${listSandboxes.replaceAll("'", '"')})`)}
`;
}

function fishLines(
  { name, summary, flags = [], verbs = [] }: VerbDefinition,
  condition: string,
  quote: (text: string) => string,
): string[] {
  const seen = `__fish_seen_subcommand_from ${name}`;
  const options = flags.map((flag) => {
    const { short, long } = readFlag(flag);
    const names = `-l ${long.slice(2)}${short === undefined ? "" : ` -s ${short.slice(1)}`}`;
    return `complete -c agent-sandbox -n ${quote(seen)} ${names} -d ${quote(flag.text)}`;
  });
  const children = verbs.flatMap((child) => fishLines(child, seen, quote));
  return [`complete -c agent-sandbox -n ${quote(condition)} -a ${name} -d ${quote(summary)}`, ...options, ...children];
}
