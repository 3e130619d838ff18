import type { Pod } from "@agent-sandbox/api";
import type { EventRecorder } from "./event-recorder.ts";
import type { PullEvent } from "./images/image-puller.ts";
import { fieldPathOf } from "./pods/field-path.ts";

/** Tells a pod's owner what became of an image, in the kubelet's words. */
export function recordPull(events: EventRecorder, pod: Pod, containerName: string, event: PullEvent): void {
  const all = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const container = all.find(({ name }) => name === containerName);
  if (container === undefined) return;
  const image = container.image ?? "";
  const shared = { object: pod, fieldPath: fieldPathOf(pod, container) };
  switch (event.kind) {
    case "pulling":
      return events.record({ ...shared, type: "Normal", reason: "Pulling", message: `Pulling image "${image}"` });
    case "progress": {
      const { doneBytes, totalBytes } = event.progress;
      const percent = Math.floor((100 * doneBytes) / totalBytes);
      const message = `Pulling image "${image}": ${percent}% (${doneBytes} of ${totalBytes} bytes)`;
      return events.record({ ...shared, type: "Normal", reason: "PullProgress", message });
    }
    case "present":
      return events.record({
        ...shared,
        type: "Normal",
        reason: "Pulled",
        message: `Container image "${image}" already present on machine`,
      });
    case "pulled": {
      const seconds = (event.durationMs / 1000).toFixed(3);
      return events.record({
        ...shared,
        type: "Normal",
        reason: "Pulled",
        message: `Successfully pulled image "${image}" in ${seconds}s. Image size: ${event.sizeBytes} bytes.`,
      });
    }
    case "failed":
      return events.record({
        ...shared,
        type: "Warning",
        reason: "Failed",
        message: `Failed to pull image "${image}": ${event.message}`,
      });
    case "back-off":
      return events.record({
        ...shared,
        type: "Normal",
        reason: "BackOff",
        message: `Back-off pulling image "${image}"`,
      });
    default:
      return event satisfies never;
  }
}
