import type { Container, Pod } from "@agent-sandbox/api";
import type { ContainerProcess } from "../host/container.ts";
import type { ImageConfig } from "../images/image-state.ts";
import type { ResolvedUser } from "../images/image-user.ts";
import { capabilitiesOf } from "./capabilities.ts";
import { expandReferences } from "./expand.ts";
import { isInjected, keepAliveArgv } from "./sandboxd-launch.ts";

/** What a container's first process follows from. */
export interface ProcessQuestion {
  readonly pod: Pod;
  readonly container: Container;
  readonly image: ImageConfig;
  readonly variables: ReadonlyMap<string, string>;
  /** The image's user; needed unless the pod sets one. */
  readonly imageUser: ResolvedUser | undefined;
  readonly hostname: string;
}

/** Either the process, or why it cannot be made. */
export type ProcessResult =
  | { readonly ok: true; readonly process: ContainerProcess }
  | { readonly ok: false; readonly message: string };

const pathDefault = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** The container's own first process, before anything is put in front of it. */
export function containerProcess(question: ProcessQuestion): ProcessResult {
  const { container, image, variables } = question;
  const named = commandLine(container, image, variables);
  const argv = named.length === 0 && staysWithoutCommand(question) ? [...keepAliveArgv] : named;
  if (argv.length === 0) return { ok: false, message: "no command specified" };
  const user = userOf(question);
  if (typeof user === "string") return { ok: false, message: user };
  const { securityContext } = container;
  return {
    ok: true,
    process: {
      argv,
      env: environmentLines(question),
      cwd: container.workingDir || image.workingDir || "/",
      uid: user.uid,
      gid: user.gid,
      ...(user.additionalGids.length > 0 && { additionalGids: user.additionalGids }),
      capabilities: capabilitiesOf(container.securityContext?.capabilities),
      noNewPrivileges: securityContext?.allowPrivilegeEscalation === false,
    },
  };
}

/** A place to run commands in needs no program of its own; an init container, which must end, does. */
function staysWithoutCommand({ pod, container }: ProcessQuestion): boolean {
  return isInjected(pod) && pod.spec?.containers.some(({ name }) => name === container.name) === true;
}

/** A command replaces the entrypoint and, unless there are arguments too, drops the image's. */
function commandLine(container: Container, image: ImageConfig, variables: ReadonlyMap<string, string>): string[] {
  const hasCommand = (container.command ?? []).length > 0;
  const hasArgs = (container.args ?? []).length > 0;
  const expand = (words: readonly string[] | undefined): string[] =>
    (words ?? []).map((word) => expandReferences(word, variables));
  const command = hasCommand ? expand(container.command) : [...image.entrypoint];
  const args = hasArgs ? expand(container.args) : hasCommand ? [] : [...image.cmd];
  return [...command, ...args];
}

function environmentLines({ container, image, variables, hostname }: ProcessQuestion): string[] {
  const merged = new Map<string, string>([
    ["PATH", pathDefault],
    ["HOSTNAME", hostname],
  ]);
  if (container.tty === true) merged.set("TERM", "xterm");
  for (const line of image.env) {
    const equals = line.indexOf("=");
    if (equals > 0) merged.set(line.slice(0, equals), line.slice(equals + 1));
  }
  for (const [name, value] of variables) merged.set(name, value);
  return [...merged].map(([name, value]) => `${name}=${value}`);
}

/** The user, or why there is none. */
function userOf({ pod, container, imageUser, image }: ProcessQuestion): ResolvedUser | string {
  const own = container.securityContext;
  const shared = pod.spec?.securityContext;
  const uid = own?.runAsUser ?? shared?.runAsUser ?? imageUser?.uid;
  if (uid === undefined) return `unable to find user ${JSON.stringify(image.user)}: no matching entries in passwd file`;
  const isOverridden = (own?.runAsUser ?? shared?.runAsUser) !== undefined;
  const gid = own?.runAsGroup ?? shared?.runAsGroup ?? (isOverridden ? 0 : (imageUser?.gid ?? 0));
  if ((own?.runAsNonRoot ?? shared?.runAsNonRoot) === true && uid === 0) {
    return "container has runAsNonRoot and image will run as root";
  }
  const merges = shared?.supplementalGroupsPolicy !== "Strict";
  const groups = new Set([
    ...(shared?.supplementalGroups ?? []),
    ...(shared?.fsGroup === undefined ? [] : [shared.fsGroup]),
    ...(merges && !isOverridden ? (imageUser?.additionalGids ?? []) : []),
  ]);
  return { uid, gid, additionalGids: [...groups] };
}
