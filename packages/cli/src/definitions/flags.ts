import type { FlagDefinition } from "../verb-definition.ts";

/** Which engine and namespace. */
export const engineFlags: readonly FlagDefinition[] = [
  { flag: "-n, --namespace <name>", text: "namespace; default: the context's, else 'default'" },
  { flag: "--kubeconfig <file>", text: "engine: a kubeconfig (AGENT_SANDBOX_KUBECONFIG)" },
  { flag: "--context <name>", text: "engine: a context of the kubeconfig (AGENT_SANDBOX_CONTEXT)" },
  { flag: "--data-dir <dir>", text: "engine: the one of this data directory (AGENT_SANDBOX_DATA_DIR)" },
  { flag: "--router-url <url>", text: "the engine's router (AGENT_SANDBOX_ROUTER_URL)" },
];

/** How objects are printed. */
export const outputFlag: FlagDefinition = {
  flag: "-o, --output <format>",
  text: "output format",
  choices: ["json", "yaml", "name", "wide"],
};

/** Of which namespaces. */
export const allNamespacesFlag: FlagDefinition = { flag: "-A, --all-namespaces", text: "of all namespaces" };

/** Which objects. */
export const selectorFlag: FlagDefinition = {
  flag: "-l, --selector <labels>",
  text: "label selector: team=a,tier!=prod",
};

/** Flags of every verb that starts a process. */
export const processFlags: readonly FlagDefinition[] = [
  { flag: "-i, --stdin", text: "pass standard input on; done by itself where it is a pipe or a file" },
  { flag: "-t, --tty", text: "give the command a terminal" },
  { flag: "-e, --env <name=value>", text: "environment variable; NAME alone takes this shell's value", repeat: true },
  { flag: "-w, --workdir <dir>", text: "working directory" },
  { flag: "-u, --user <user>", text: "user: name, uid, name:group or uid:gid" },
  { flag: "--command-timeout <time>", text: "kill the command after: 30s, 5m, 1h30m" },
];

/** When a sandbox sleeps, how it wakes, and what becomes of one that failed. */
export const sleepFlags: readonly FlagDefinition[] = [
  {
    flag: "--auto-suspend <time>",
    text: "sleep after this long without activity; a pool's member counts from its claim",
  },
  { flag: "--wake-policy <when>", text: "whether traffic wakes it", choices: ["OnTraffic", "Never"] },
  {
    flag: "--suspension-strategy <how>",
    text: "what sleep does to processes",
    choices: ["Stop", "Freeze", "Hibernate"],
  },
  {
    flag: "--hibernate-after <time>",
    text: "after this long without activity a frozen one hibernates; with --auto-suspend and Freeze",
  },
  {
    flag: "--pod-failure-policy <what>",
    text: "whether a Pod that failed is replaced",
    choices: ["Never", "Recreate"],
  },
];

/** Which engine of this machine is meant, by where it lies. */
export const engineDataDirFlag = {
  flag: "--data-dir <dir>",
  text: "data directory (AGENT_SANDBOX_DATA_DIR); default /var/lib/agent-sandbox",
};
