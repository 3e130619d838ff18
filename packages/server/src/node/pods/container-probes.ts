import type { Container, Pod } from "@agent-sandbox/api";
import { ProbeRunner } from "../probes/probe-runner.ts";
import { fieldPathOf } from "./field-path.ts";
import type { PodContext } from "./pod-context.ts";

/** One run of a container of a pod. */
export interface RunningContainer {
  readonly pod: Pod;
  readonly container: Container;
  readonly hostId: string;
  /** An earlier agent saw it ready, and it has stood still since. */
  readonly wasReady?: boolean;
}

/** Starts the probes of a run; a container without probes costs nothing. */
export function startProbes(context: PodContext, { pod, container, hostId, wasReady }: RunningContainer): void {
  const { probes, clock, dialers, events, records } = context;
  if (
    container.startupProbe === undefined &&
    container.livenessProbe === undefined &&
    container.readinessProbe === undefined
  )
    return;
  if (probes.has(hostId)) return;
  const address = records.get(pod.metadata.uid ?? "")?.address ?? "";
  const ports = new Map(
    (container.ports ?? []).flatMap(({ name, containerPort }) =>
      name === undefined ? [] : [[name, containerPort] as const],
    ),
  );
  const { namespace = "", name } = pod.metadata;
  const runner = new ProbeRunner({
    container,
    ...(wasReady !== undefined && { wasReady }),
    target: { address, ports, exec: (command, signal) => context.runCommand(hostId, command, signal) },
    dialers,
    clock,
    onChange: () => context.wake({ namespace, name }),
    onFailure: (probe, result) => {
      const title = `${probe[0]?.toUpperCase() ?? ""}${probe.slice(1)}`;
      const message = `${title} probe failed: ${result.message}`;
      events.record({
        object: pod,
        type: "Warning",
        reason: "Unhealthy",
        message,
        fieldPath: fieldPathOf(pod, container),
      });
    },
  });
  probes.set(hostId, runner);
  runner.start();
  if (context.sleep.isStill(pod.metadata.uid ?? "")) runner.pause();
}

/** Ends the probes of a run. */
export function stopProbes({ probes }: PodContext, hostId: string): void {
  probes.get(hostId)?.stop();
  probes.delete(hostId);
}
