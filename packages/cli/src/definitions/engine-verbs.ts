import { addressDefaults } from "../up-flags.ts";
import type { VerbDefinition } from "../verb-definition.ts";
import { archiveFlags } from "./archive-store-verbs.ts";
import { engineDataDirFlag, engineFlags } from "./flags.ts";

const passphraseFlag = {
  flag: "--passphrase-file <file>",
  text: "encrypt with the passphrase in this file, or decrypt; - reads standard input",
};

/** Verbs about the engine of this machine. */
export const engineVerbs: readonly VerbDefinition[] = [
  {
    name: "up",
    summary: "start the engine of this machine",
    flags: [
      engineDataDirFlag,
      { flag: "--listen <host:port>", text: "address of the API", value: addressDefaults.api },
      { flag: "--router-listen <host:port>", text: "address of the router", value: addressDefaults.router },
      { flag: "--metrics-listen <host:port>", text: "address of the metrics", value: addressDefaults.metrics },
      {
        flag: "--insecure-listen <host:port>",
        text: "a second router address, loopback only, that asks for no credentials",
      },
      { flag: "--kubeconfig-out <file>", text: "also write the administrator's kubeconfig here" },
      { flag: "-d, --detach", text: "return when the engine answers, and leave it running" },
      {
        flag: "--log-level <level>",
        text: "level of the log",
        value: "info",
        choices: ["trace", "debug", "info", "warn", "error"],
      },
      { flag: "--allow-runc", text: "let Pods ask for the trusted tier, runc" },
      { flag: "--allow-host-path <dir>", text: "let hostPath volumes use this directory", repeat: true },
      {
        flag: "--sandboxes-ahead <count>",
        text: "sandboxes kept running for Pods that are still to come; default 1, 0: none",
      },
      { flag: "--image-gc-high-threshold <percent>", text: "disk in use from which on unused images go; default 85" },
      { flag: "--image-gc-low-threshold <percent>", text: "disk in use below which no more of them go; default 80" },
      { flag: "--minimum-image-ttl-duration <time>", text: "how long an image stays after its last use; default 2m" },
      {
        flag: "--system-reserved-memory <quantity>",
        text: "memory that no sandbox gets; default a tenth of the machine's, at least 512Mi",
      },
      {
        flag: "--system-reserved-disk <quantity>",
        text: "disk that is kept free; default a twentieth of it, 1Gi to 10Gi",
      },
      {
        flag: "--default-pod-memory <quantity>",
        text: "memory of a Pod that names no limit; default a quarter of what sandboxes have, 512Mi to 4Gi",
      },
      {
        flag: "--default-pod-disk <quantity>",
        text: "writable layer of a container that names no limit; default 10Gi",
      },
      { flag: "--pod-max-pids <count>", text: "processes and threads of a Pod, the runtime's included; default 4096" },
      ...archiveFlags,
    ],
    examples: ["agent-sandbox up --detach", "agent-sandbox up --kubeconfig-out ./kubeconfig"],
    load: async () => (await import("../verbs/up.ts")).upVerb,
  },
  {
    name: "down",
    summary: "stop the engine of this machine and its sandboxes; what they wrote stays",
    flags: [engineDataDirFlag, { flag: "--purge", text: "delete everything that the engine ever made, data included" }],
    load: async () => (await import("../verbs/down.ts")).downVerb,
  },
  {
    name: "upgrade",
    summary: "replace the engine of this machine by another version; sandboxes run on",
    flags: [
      engineDataDirFlag,
      { flag: "--from <file>", text: "release to install: agent-sandbox-<version>-linux-<arch>.tar.gz" },
      { flag: "--check", text: "look whether it could be done, and change nothing" },
      { flag: "--prefix <dir>", text: "directory of releases; default: where the one that runs is installed" },
      {
        flag: "--restore-data",
        text: "going back to a version that cannot read the data: take the copy from before the upgrade",
      },
    ],
    examples: ["agent-sandbox upgrade --from ./agent-sandbox-0.2.0-linux-x64.tar.gz"],
    load: async () => (await import("../verbs/upgrade.ts")).upgradeVerb,
  },
  {
    name: "status",
    summary: "show whether the engine runs, where, and what its sandboxes cost",
    flags: [engineDataDirFlag, { flag: "-o, --output <format>", text: "output format", choices: ["json", "yaml"] }],
    load: async () => (await import("../verbs/status.ts")).statusVerb,
  },
  {
    name: "doctor",
    summary: "test what works on this machine and say why not",
    flags: [
      engineDataDirFlag,
      { flag: "--fix", text: "mend what can be mended" },
      { flag: "-o, --output <format>", text: "output format", choices: ["json"] },
    ],
    load: async () => (await import("../verbs/doctor.ts")).doctorVerb,
  },
  {
    name: "verify",
    summary: "try to break out of sandboxes of this engine, and say what held",
    flags: [
      { flag: "--image <image>", text: "image of the sandboxes; on a cluster it must be named, and have sh and cat" },
      { flag: "--runtime <class>", text: "runtime class to test; default: the engine's" },
      { flag: "--template <name>", text: "test Pods of this SandboxTemplate instead of plain ones" },
      { flag: "-o, --output <format>", text: "output format", choices: ["json"] },
      ...engineFlags.map((entry) =>
        entry.flag.startsWith("-n,")
          ? { ...entry, text: "namespace to use; default: one made for the run and deleted after it" }
          : entry,
      ),
    ],
    examples: ["agent-sandbox verify", "agent-sandbox verify --context prod --image python:3.13 -o json"],
    load: async () => (await import("../verbs/verify.ts")).verifyVerb,
  },
  {
    name: "backup",
    summary: "write everything that the engine of this machine keeps to one file, while it runs",
    flags: [
      engineDataDirFlag,
      { flag: "--to <place>", text: "file, directory, or - for standard output" },
      { flag: "--include <parts>", text: "besides database and keys: volumes, layers, images; default volumes" },
      { flag: "--all", text: "all of them" },
      passphraseFlag,
      { flag: "--pause-max <time>", text: "how long writers may wait while one volume is copied", value: "30s" },
      { flag: "--verify <file>", text: "write nothing; check that a backup is whole" },
      { flag: "-o, --output <format>", text: "output format", choices: ["json"] },
    ],
    examples: [
      "agent-sandbox backup --all --to /backup --passphrase-file ~/passphrase",
      "agent-sandbox backup --to - | ssh other 'cat > engine.tar'",
    ],
    load: async () => (await import("../verbs/backup.ts")).backupVerb,
  },
  {
    name: "restore",
    summary: "put a backup into an empty data directory, here or on another machine",
    flags: [
      engineDataDirFlag,
      { flag: "--from <file>", text: "the backup" },
      passphraseFlag,
      { flag: "--force", text: "move what is in the data directory aside first" },
    ],
    examples: ["agent-sandbox restore --from engine.tar && agent-sandbox up --detach"],
    load: async () => (await import("../verbs/backup.ts")).restoreVerb,
  },
  {
    name: "controller",
    summary: "run the controllers on a cluster; takes the reference controller's flags",
    isOpaque: true,
    args: "[flags...]",
    passThrough: true,
    load: async () => (await import("../verbs/roles.ts")).controllerVerb,
  },
  {
    name: "router",
    summary: "run the router on a cluster; takes the reference router's flags",
    isOpaque: true,
    args: "[flags...]",
    passThrough: true,
    load: async () => (await import("../verbs/roles.ts")).routerVerb,
  },
  {
    name: "node",
    summary: "join this machine to a cluster as a node",
    isOpaque: true,
    args: "[flags...]",
    passThrough: true,
    load: async () => (await import("../verbs/roles.ts")).nodeVerb,
  },
];
