import { basename } from "node:path";
import type { Pod, SandboxService } from "@agent-sandbox/api";
import { annotationKeys } from "@agent-sandbox/api";
import type { ContainerMount, ContainerProcess } from "../host/container.ts";

/** Where the daemon is inside a sandbox. Exported for tests. */
export const sandboxdTarget = "/.agent-sandbox/sandboxd";

/** Stays alive and does nothing else: what runs where neither container nor image names a program. */
export const keepAliveArgv = [sandboxdTarget, "init", "--listen=off"] as const;

/** Where it writes the log and the last word. */
const sandboxdStateTarget = "/.agent-sandbox/state";

/** The one port it serves on. */
export const sandboxdPort = 49_900;

/** Bytes at which a container's log is rotated; the daemon keeps five files. */
const logBytesMax = 10 * 2 ** 20;

/** What the name of a run's last word ends with, below the state directory. */
export const messageSuffix = ".message";

/** Legacy runtime, REST and gRPC of the published clients. */
const publishedListen = ":8888,:8080,:9090";

/** Whether the daemon listens on the published clients' ports. */
export function bindsPublishedPorts(pod: Pod): boolean {
  return pod.metadata.annotations?.[annotationKeys.daemon] === "published-ports";
}

/** Whether the daemon goes into the pod's containers. */
export function isInjected(pod: Pod): boolean {
  return pod.metadata.annotations?.[annotationKeys.daemon] !== "disabled";
}

/** How one container is started behind the daemon. */
export interface SandboxdLaunch {
  readonly process: ContainerProcess;
  readonly mounts: readonly ContainerMount[];
}

/** What the launch of a container follows from. */
export interface LaunchQuestion {
  readonly process: ContainerProcess;
  readonly sandboxdPath: string;
  /** An emptyDir of the pod that the daemon writes to. */
  readonly stateId: string;
  /** Below the state directory: one per run of a container. */
  readonly runName: string;
  /** Only one container of a pod can have the port. */
  readonly isServing: boolean;
  readonly bindsPublishedPorts: boolean;
  /** Where the container's program may leave a last word. */
  readonly messagePath: string;
  readonly hasTerminal: boolean;
  readonly hasStdin: boolean;
  /** What the daemon keeps running. */
  readonly services: readonly SandboxService[];
}

/** Puts the daemon in front of a container's process. */
export function sandboxdLaunch(question: LaunchQuestion): SandboxdLaunch {
  const { process, sandboxdPath, stateId, runName, isServing, hasTerminal, hasStdin, services } = question;
  const directory = `${sandboxdStateTarget}/${runName}`;
  const flags = [
    `--log-dir=${directory}`,
    `--log-max-bytes=${logBytesMax}`,
    `--message-file=${question.messagePath}`,
    `--message-copy=${directory}${messageSuffix}`,
    "--handshake",
    ...(isServing ? [] : ["--listen=off"]),
    ...(isServing && question.bindsPublishedPorts ? [`--extra-listen=${publishedListen}`] : []),
    ...(hasTerminal ? ["--tty"] : []),
    ...(hasStdin ? ["--stdin"] : []),
  ];
  return {
    process: {
      ...process,
      argv: [sandboxdTarget, "init", ...flags, "--", ...process.argv],
      // Not a flag: who ends a server by a part of its command line would end the daemon too. The daemon keeps it from what it starts.
      ...(isServing &&
        services.length > 0 && { env: [...process.env, `AGENT_SANDBOXD_SERVICES=${JSON.stringify(services)}`] }),
    },
    mounts: [
      { source: { kind: "program", name: basename(sandboxdPath) }, target: sandboxdTarget, readOnly: true },
      { source: { kind: "empty-dir", id: stateId }, target: sandboxdStateTarget, readOnly: false },
    ],
  };
}

/** The first process of a sandbox made ahead: it sets the name that it is given, and waits for the end. */
export function waitingLaunch(sandboxdPath: string): { process: ContainerProcess; mounts: ContainerMount[] } {
  return {
    process: {
      argv: [sandboxdTarget, "pause"],
      env: ["PATH=/usr/bin:/bin"],
      cwd: "/",
      uid: 0,
      gid: 0,
      // To set the sandbox's name and to become the user `nobody`; it has none of them when a pod's container starts.
      capabilities: ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"],
      noNewPrivileges: true,
    },
    mounts: [{ source: { kind: "program", name: basename(sandboxdPath) }, target: sandboxdTarget, readOnly: true }],
  };
}
