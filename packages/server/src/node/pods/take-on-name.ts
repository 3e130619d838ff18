import type { Pod } from "@agent-sandbox/api";
import type { ContainerProcess } from "../host/container.ts";
import { HostError } from "../host/host-error.ts";
import type { PodContext } from "./pod-context.ts";
import { hostnameOf } from "./pod-names.ts";
import type { PodRecord } from "./pod-record.ts";
import { isInjected, sandboxdTarget } from "./sandboxd-launch.ts";

/** How long the hook of a container may take; the Sandbox is not Ready before. */
const hookMaxMs = 30_000;

/** What sets the name of a sandbox: it needs this one right, and ends at once. */
const namingProcess: ContainerProcess = {
  argv: [],
  env: ["PATH=/usr/bin:/bin"],
  cwd: "/",
  uid: 0,
  gid: 0,
  capabilities: ["CAP_SYS_ADMIN"],
  noNewPrivileges: true,
};

/**
 * Replaces the name that the memory of a snapshot has, and lets each container reseed what it must not share with its source. A sandbox that was made ahead has set its
 * name itself, which the runtime keeps; every other one has that of its own start.
 */
export async function takeOnName(context: PodContext, pod: Pod, record: PodRecord, signal: AbortSignal): Promise<void> {
  if (!isInjected(pod)) return;
  const { pauseId } = record;
  const hasDaemon = pauseId !== undefined && (pod.spec?.containers ?? []).length === 1;
  if (hasDaemon) {
    const process = { ...namingProcess, argv: [sandboxdTarget, "set-name", hostnameOf(pod)] };
    await using stream = await context.host.exec({ id: pauseId, process, stdin: false }, signal);
    stream.stdout.resume();
    stream.stderr.resume();
    const code = await stream.exit;
    if (code !== 0)
      throw new HostError("runtime-failed", `the name of pod ${record.name} cannot be set: exit code ${code}`);
  }
  const runs = Object.values(record.containers).filter(({ end }) => end === undefined);
  await Promise.all(runs.map((run) => runHook(context, pod, run.hostId, signal)));
}

/** A hook that fails has an event: its container runs, and what it did not reseed is its own concern. */
async function runHook(context: PodContext, pod: Pod, hostId: string, signal: AbortSignal): Promise<void> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(hookMaxMs)]);
  let failure: string | undefined;
  try {
    const { exitCode, output } = await context.runCommand(hostId, [sandboxdTarget, "after-restore"], within);
    if (exitCode !== 0) failure = `exit code ${exitCode}: ${output}`;
  } catch (error) {
    if (signal.aborted || (error instanceof HostError && error.code === "unavailable")) throw error;
    failure = error instanceof Error ? error.message : String(error);
  }
  if (failure === undefined) return;
  const message = `the hook after the restore failed: ${failure}`;
  context.events.record({ object: pod, type: "Warning", reason: "FailedAfterRestoreHook", message });
}
