import { join } from "node:path";
import type { Pod } from "@agent-sandbox/api";
import { openWritten, readLogs } from "../logs/read-logs.ts";
import { containerLog, stateDirectory } from "./container-log.ts";
import type { PodContext } from "./pod-context.ts";
import type { ContainerRecord } from "./pod-record.ts";
import { isInjected, messageSuffix } from "./sandboxd-launch.ts";
import { runName } from "./start-container.ts";

/** Bytes of a message, and lines and bytes of log that stand in for one; the kubelet's figures. */
const messageBytesMax = 4096;
const fallbackLines = 80;
const fallbackBytesMax = 2048;

/** The last word of a run: what it wrote to its termination message file, or the end of its log if it failed and asked for that. */
export async function readTerminationMessage(
  context: PodContext,
  pod: Pod,
  run: ContainerRecord,
): Promise<string | undefined> {
  const written = isInjected(pod) ? await readMessage(context, pod, run) : undefined;
  if (written !== undefined) return written;
  const all = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const container = all.find(({ name }) => name === run.name);
  const exitCode = context.exits.states.get(run.hostId)?.exit?.exitCode;
  if (container?.terminationMessagePolicy !== "FallbackToLogsOnError" || exitCode === 0) return undefined;
  const { path, format } = containerLog(context, pod, { container: run.name, attempt: run.attempt });
  const options = { follow: false, tailLines: fallbackLines, timestamps: false, format };
  let text = Buffer.alloc(0);
  for await (const chunk of readLogs({ path, options, isLive: () => false, signal: context.signal })) {
    text = Buffer.concat([text, chunk]).subarray(-fallbackBytesMax);
  }
  return text.length === 0 ? undefined : text.toString("utf8");
}

/** The daemon copies the message out of the sandbox; the sandbox may have put anything in the copy's place. */
async function readMessage(context: PodContext, pod: Pod, run: ContainerRecord): Promise<string | undefined> {
  const directory = stateDirectory(context, pod.metadata.uid ?? "");
  const file = await openWritten(join(directory, `${runName(run.name, run.attempt)}${messageSuffix}`));
  if (file === undefined) return undefined;
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(messageBytesMax), 0, messageBytesMax, 0);
    return bytesRead === 0 ? undefined : buffer.subarray(0, bytesRead).toString("utf8");
  } finally {
    await file.close();
  }
}
