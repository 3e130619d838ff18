import type { Pod } from "@agent-sandbox/api";
import { readLogs } from "../logs/read-logs.ts";
import { containerLog } from "./container-log.ts";
import type { PodContext } from "./pod-context.ts";
import type { ContainerRecord } from "./pod-record.ts";

/** Lines and bytes of log that stand in for a message; the kubelet's figures. */
const fallbackLines = 80;
const fallbackBytesMax = 2048;

/** The end of the log of a container that failed and asked for that; undefined when there is none. */
export async function readTerminationMessage(
  context: PodContext,
  pod: Pod,
  run: ContainerRecord,
): Promise<string | undefined> {
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
