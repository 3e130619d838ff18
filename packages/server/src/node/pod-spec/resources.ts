import { type Container, type Pod, parseQuantity } from "@agent-sandbox/api";
import type { EnsureCgroupRequest } from "../host/cgroup.ts";
import type { SandboxSize } from "../host/container.ts";
import { type ResourceLimits, sandboxesMemoryBytes } from "../limits.ts";

/** A quantity as a number, exact to a thousandth; admission has validated it. */
export function quantityValue(text: string): number {
  return Number(parseQuantity(text).millis) / 1000;
}

/** Memory the sentry and its gofer need besides what the pod was promised; about 25 MiB were measured. */
const sentryOverheadBytes = 64 * 2 ** 20;

/** Weight of a pod that requested no processor time. */
const cpuSharesMin = 2;

/** The pod's limits as one cgroup; a limit of processor time applies to the pod only if every container has it. */
export function podCgroup(
  pod: Pick<Pod, "spec">,
  { id, limits }: { readonly id: string; readonly limits: ResourceLimits },
): EnsureCgroupRequest {
  const cpuLimit = podLimit(pod, "cpu");
  const cpuRequest = podRequest(pod, "cpu");
  const overhead = pod.spec?.overhead?.["memory"];
  const overheadBytes = overhead === undefined ? sentryOverheadBytes : quantityValue(overhead);
  return {
    id,
    cpuShares: Math.min(262_144, Math.max(cpuSharesMin, Math.floor(cpuRequest * 1024))),
    pids: limits.podPidsMax,
    ...(cpuLimit !== undefined && { cpuMillis: Math.max(10, Math.ceil(cpuLimit * 1000)) }),
    memoryBytes: Math.ceil(podMemory(pod, limits) + overheadBytes),
  };
}

/** Fewer make programs leave out locks that the sentry's own threads need them to take; the runtime's own minimum. */
const cpusMin = 2;

/** What the pod's sandbox says of its machine: the limits, or the machine's own where it has none. */
export function podSize(
  pod: Pick<Pod, "spec">,
  {
    limits,
    cpus,
    memoryBytes,
  }: { readonly limits: ResourceLimits; readonly cpus: number; readonly memoryBytes: number },
): SandboxSize {
  const cpuLimit = podLimit(pod, "cpu");
  return {
    memoryBytes: Math.ceil(Math.min(podMemory(pod, limits), sandboxesMemoryBytes(limits, memoryBytes))),
    cpus: cpuLimit === undefined ? cpus : Math.min(cpus, Math.max(cpusMin, Math.ceil(cpuLimit))),
  };
}

/** Memory of the pod's containers: what they name, and the default once for all that name none, or what those request if it is more. */
export function podMemory(pod: Pick<Pod, "spec">, { podMemoryBytes }: ResourceLimits): number {
  const limit = podLimit(pod, "memory");
  if (limit !== undefined) return limit;
  const containers = pod.spec?.containers ?? [];
  const initContainers = pod.spec?.initContainers ?? [];
  const memoryOf = (list: Readonly<Record<string, string>> | undefined): number =>
    quantityValue(list?.["memory"] ?? "0");
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const long = [...containers, ...initContainers.filter(isSidecar)];
  const [named, unnamed] = [true, false].map((isNamed) =>
    long.filter(({ resources }) => (resources?.limits?.["memory"] !== undefined) === isNamed),
  );
  const promised = sum((unnamed ?? []).map(({ resources }) => memoryOf(resources?.requests)));
  const running = sum((named ?? []).map(({ resources }) => memoryOf(resources?.limits)));
  const inits = initContainers.map(({ resources }) => memoryOf(resources?.limits ?? resources?.requests));
  return Math.max(running + Math.max(podMemoryBytes, promised), ...inits);
}

/** Sum of the running containers' limits, or the largest init container's if that is more. */
function podLimit(pod: Pick<Pod, "spec">, resource: string): number | undefined {
  const containers = pod.spec?.containers ?? [];
  const initContainers = pod.spec?.initContainers ?? [];
  const long = [...containers, ...initContainers.filter(isSidecar)];
  const limits = long.map((container) => container.resources?.limits?.[resource]);
  if (limits.length === 0 || limits.some((limit) => limit === undefined)) return undefined;
  const sum = limits.reduce((total, limit) => total + quantityValue(limit ?? "0"), 0);
  const inits = initContainers.map((container) => container.resources?.limits?.[resource]);
  return Math.max(sum, ...inits.map((limit) => (limit === undefined ? 0 : quantityValue(limit))));
}

/** What the pod requests of a resource, as the scheduler counts it. */
function podRequest(pod: Pick<Pod, "spec">, resource: string): number {
  const containers = pod.spec?.containers ?? [];
  const initContainers = pod.spec?.initContainers ?? [];
  const request = ({ resources }: Container): number =>
    quantityValue(resources?.requests?.[resource] ?? resources?.limits?.[resource] ?? "0");
  const long = [...containers, ...initContainers.filter(isSidecar)];
  const sum = long.reduce((total, container) => total + request(container), 0);
  return Math.max(sum, ...initContainers.map(request));
}

/** An init container that keeps running beside the others. */
export function isSidecar(container: Container): boolean {
  return container.restartPolicy === "Always";
}

/** The quality-of-service class Kubernetes derives from requests and limits. */
export function qosClass(pod: Pod): "Guaranteed" | "Burstable" | "BestEffort" {
  const all = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const compute = ["cpu", "memory"];
  const has = (list: Readonly<Record<string, string>> | undefined): boolean =>
    compute.some((resource) => list?.[resource] !== undefined && quantityValue(list[resource]) > 0);
  if (!all.some(({ resources }) => has(resources?.requests) || has(resources?.limits))) return "BestEffort";
  const guaranteed = all.every(({ resources }) =>
    compute.every((resource) => {
      const limit = resources?.limits?.[resource];
      const request = resources?.requests?.[resource] ?? limit;
      return limit !== undefined && request !== undefined && quantityValue(limit) === quantityValue(request);
    }),
  );
  return guaranteed ? "Guaranteed" : "Burstable";
}
