import type { VerbDefinition } from "../verb-definition.ts";
import { archiveStoreVerbs } from "./archive-store-verbs.ts";
import { archiveVerbs } from "./archive-verbs.ts";
import { allNamespacesFlag, engineFlags, outputFlag, processFlags, selectorFlag, sleepFlags } from "./flags.ts";

const saveFlags = [
  { flag: "--no-memory", text: "files only, without processes and memory" },
  { flag: "--ttl <time>", text: "delete what is made after: 30m, 24h" },
];

/** Verbs about one sandbox and what runs in it. */
export const sandboxVerbs: readonly VerbDefinition[] = [
  {
    name: "run",
    summary: "run a command in a sandbox of its own; starts the engine where none runs",
    args: "[command...]",
    passThrough: true,
    flags: [
      { flag: "--image <image>", text: "image; default: this machine's own /usr" },
      { flag: "--from-snapshot <name>", text: "start from a snapshot; without --image, with what ran in its sandbox" },
      { flag: "--pool <name>", text: "take a sandbox from a warm pool" },
      { flag: "--name <name>", text: "name of the sandbox; made where there is none, and kept" },
      { flag: "--keep", text: "keep the sandbox when the command ends" },
      { flag: "--rm", text: "delete the sandbox when the command ends; the default without --name and --keep" },
      { flag: "--cpu <quantity>", text: "limit: 500m, 2" },
      { flag: "--memory <quantity>", text: "limit: 512Mi, 4Gi" },
      { flag: "--disk <quantity>", text: "limit of what is written outside volumes: 1Gi" },
      { flag: "--volume <path:size>", text: "storage that outlives suspension: /work:10Gi", repeat: true },
      { flag: "--runtime <class>", text: "runtime class: gvisor, runc" },
      { flag: "--ttl <time>", text: "delete the sandbox after: 30m, 24h" },
      ...sleepFlags,
      { flag: "--label <name=value>", text: "label of the sandbox", repeat: true },
      {
        flag: "-d, --detach",
        text: "print the name when the command has started, and leave it running; what it prints is in logs",
      },
      {
        flag: "--service <name>",
        text: "as --detach, and keep it running: started again when it ends, and after sleep",
      },
      ...processFlags,
      ...engineFlags,
    ],
    examples: [
      "agent-sandbox run -- echo hello",
      "agent-sandbox run -it -- bash",
      "echo 'print(6*7)' | agent-sandbox run --image python:3.13 -- python -",
      "agent-sandbox run --name dev --volume /work:10Gi -w /work -- git init",
      "agent-sandbox run --name dev --service web -- python3 -m http.server 8000",
    ],
    load: async () => (await import("../verbs/run.ts")).runVerb,
  },
  {
    name: "exec",
    summary: "run a command in a sandbox that exists",
    args: "<sandbox> [command...]",
    passThrough: true,
    flags: [...processFlags, ...engineFlags],
    examples: ["agent-sandbox exec dev -- ls -l /work", "agent-sandbox exec -it dev bash"],
    load: async () => (await import("../verbs/exec.ts")).execVerb,
  },
  {
    name: "shell",
    summary: "open a shell in a sandbox",
    args: "<sandbox>",
    flags: [...processFlags.slice(2, 5), ...engineFlags],
    load: async () => (await import("../verbs/exec.ts")).shellVerb,
  },
  {
    name: "cp",
    summary: "copy files or directories in or out; SANDBOX:PATH names the other side, - standard input or output",
    args: "<from> <to>",
    flags: engineFlags,
    examples: [
      "agent-sandbox cp ./src dev:/work",
      "agent-sandbox cp dev:/work/out.csv .",
      "agent-sandbox cp dev:/work/out.csv - | head",
    ],
    load: async () => (await import("../verbs/cp.ts")).cpVerb,
  },
  {
    name: "logs",
    summary: "print what a sandbox's own process wrote, and what was started with run -d",
    args: "<sandbox>",
    flags: [
      { flag: "-f, --follow", text: "go on with what comes" },
      { flag: "--tail <lines>", text: "only the last lines" },
      { flag: "--since <time>", text: "only of the last: 10m" },
      { flag: "--timestamps", text: "with the time of each line" },
      { flag: "-p, --previous", text: "of the run before the last restart" },
      { flag: "-c, --container <name>", text: "of this container" },
      {
        flag: "--process <name>",
        text: "of this service or process: what is in brackets, or an id; entrypoint: its own",
      },
      { flag: "--raw", text: "control characters as they are, also to a terminal" },
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/logs.ts")).logsVerb,
  },
  {
    name: "service",
    summary: "what is kept running in a sandbox; run --service starts one",
    verbs: [
      {
        name: "ls",
        summary: "list the services of a sandbox",
        args: "<sandbox>",
        flags: engineFlags,
        load: async () => (await import("../verbs/service.ts")).serviceLsVerb,
      },
      {
        name: "rm",
        summary: "end services for good",
        args: "<sandbox> <services...>",
        flags: engineFlags,
        load: async () => (await import("../verbs/service.ts")).serviceRmVerb,
      },
    ],
  },
  {
    name: "port-forward",
    summary: "make a sandbox's port reachable on this machine",
    args: "<sandbox> <ports...>",
    flags: [{ flag: "--address <host>", text: "where to listen", value: "127.0.0.1" }, ...engineFlags],
    examples: ["agent-sandbox port-forward dev 8888", "agent-sandbox port-forward dev 8000:80"],
    load: async () => (await import("../verbs/port-forward.ts")).portForwardVerb,
  },
  {
    name: "open",
    summary: "print a link to a sandbox's port that a browser can open",
    args: "<sandbox> <port>",
    flags: [{ flag: "--ttl <time>", text: "life of the link", value: "1h" }, ...engineFlags],
    load: async () => (await import("../verbs/open.ts")).openVerb,
  },
  {
    name: "suspend",
    summary: "put sandboxes to sleep; what they wrote stays, and traffic wakes them",
    args: "<sandbox...>",
    flags: [{ flag: "--hold", text: "only 'resume' wakes it" }, ...engineFlags],
    load: async () => (await import("../verbs/suspend.ts")).suspendVerb,
  },
  {
    name: "resume",
    summary: "wake sandboxes",
    args: "<sandbox...>",
    flags: [{ flag: "--cold", text: "give up memory that was saved and start from the files alone" }, ...engineFlags],
    load: async () => (await import("../verbs/suspend.ts")).resumeVerb,
  },
  {
    name: "snapshot",
    summary: "saved states of sandboxes; run --from-snapshot starts from one",
    verbs: [
      {
        name: "create",
        summary: "save a sandbox, awake or asleep, and print the name of the snapshot; the sandbox goes on",
        args: "<sandbox>",
        flags: [{ flag: "--name <name>", text: "name of the snapshot" }, ...saveFlags, ...engineFlags],
        examples: ["agent-sandbox snapshot create dev --name before-upgrade"],
        load: async () => (await import("../verbs/snapshot.ts")).snapshotCreateVerb,
      },
      {
        name: "ls",
        summary: "list snapshots",
        flags: [outputFlag, allNamespacesFlag, selectorFlag, ...engineFlags],
        load: async () => (await import("../verbs/snapshot.ts")).snapshotLsVerb,
      },
      {
        name: "rm",
        summary: "delete snapshots; sandboxes that were started from them stay",
        args: "<names...>",
        flags: engineFlags,
        load: async () => (await import("../verbs/snapshot.ts")).snapshotRmVerb,
      },
    ],
  },
  {
    name: "fork",
    summary: "copy a sandbox as it is now, processes and files, and print the names of the copies",
    args: "<sandbox>",
    flags: [
      { flag: "--count <n>", text: "how many", value: "1" },
      { flag: "--name <prefix>", text: "their names begin with it and end with -1, -2 and so on" },
      ...saveFlags,
      ...engineFlags,
    ],
    examples: ["agent-sandbox fork dev --count 4 --name try"],
    load: async () => (await import("../verbs/snapshot.ts")).forkVerb,
  },
  {
    name: "archive",
    summary: "sandboxes that have left this machine; unarchive, or traffic, brings them back",
    verbs: [...archiveVerbs, ...archiveStoreVerbs],
  },
  {
    name: "unarchive",
    summary: "bring sandboxes back from the archive, with everything",
    args: "<sandbox...>",
    flags: [
      { flag: "--id <id>", text: "of one whose object is lost: what the archive's own index calls it" },
      ...engineFlags,
    ],
    load: async () => (await import("../verbs/archiving.ts")).unarchiveVerb,
  },
];
