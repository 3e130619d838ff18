import { ignore, isReasonOf, type Node, nodes, type Pod, pods } from "@agent-sandbox/api";
import { type Client, Informer, systemClock } from "@agent-sandbox/kube";

/** What makes a Pod of a test end or fail, as annotations. */
export const exitCodeAnnotation = "fake-kubelet.test/exit-code";

/** Makes the kubelet report the end of a deleted Pod before it removes it, as a real one does. */
export const reportsEndAnnotation = "fake-kubelet.test/reports-end";

/** Makes the containers of a Pod end with this code again and again: they wait for their next restart. */
export const crashesAnnotation = "fake-kubelet.test/crashes";

/** An image that is never there. */
export const missingImage = "example.com/missing:1";

/** A kubelet that runs nothing and says what a real one would. */
export interface FakeKubelet {
  /** Runs until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  /** Status writes and deletes so far. */
  readonly writes: () => number;
}

/** How long a container takes to end after its Pod was deleted; shorter than any grace period that is not zero. */
const stopMs = 30;

/** How long a Pod's reported end stands before the Pod goes: long enough for controllers to see it. */
const reportedMs = 500;

/** How long it waits before it says again what an API that was away did not take. */
const awayMs = 200;

/** 128 + SIGKILL. */
const killedExitCode = 137;

/** Makes a kubelet for one node. Every Pod bound to it is Ready at once, honours its grace period, and ends as its annotation says. */
export function fakeKubelet(client: Client, nodeName: string): FakeKubelet {
  let writes = 0;
  let addresses = 0;
  const informer = new Informer<Pod>({
    client,
    resource: pods,
    clock: systemClock,
    fieldSelector: `spec.nodeName=${nodeName}`,
  });
  const stopping = new Set<string>();
  const act = async (pod: Pod, signal: AbortSignal): Promise<void> => {
    if (pod.metadata.deletionTimestamp !== undefined) return stop(pod, signal);
    if (pod.status?.phase !== "Pending") return;
    addresses += 1;
    writes += 1;
    const ip = `10.100.${(addresses >> 8) & 255}.${addresses & 255}`;
    await patchStatus(client, pod, startedStatus(pod, ip), signal);
    const { [exitCodeAnnotation]: exitCode, [crashesAnnotation]: crashCode } = pod.metadata.annotations ?? {};
    if (crashCode !== undefined) {
      writes += 1;
      await patchStatus(client, pod, crashingStatus(pod, Number(crashCode)), signal);
    }
    if (exitCode === undefined) return;
    writes += 1;
    await patchStatus(client, pod, endedStatus(pod, Number(exitCode)), signal);
  };
  const stop = async (pod: Pod, signal: AbortSignal): Promise<void> => {
    const { uid = "" } = pod.metadata;
    if (stopping.has(uid)) return;
    stopping.add(uid);
    await end(pod, signal).catch((error: unknown) => {
      stopping.delete(uid);
      throw error;
    });
  };
  const end = async (pod: Pod, signal: AbortSignal): Promise<void> => {
    const { namespace = "", name, uid = "", deletionGracePeriodSeconds = 0 } = pod.metadata;
    if (deletionGracePeriodSeconds > 0) await new Promise((resolve) => setTimeout(resolve, stopMs));
    if (pod.metadata.annotations?.[reportsEndAnnotation] !== undefined) {
      writes += 1;
      await patchStatus(client, pod, endedStatus(pod, killedExitCode), signal);
      await new Promise((resolve) => setTimeout(resolve, reportedMs));
    }
    writes += 1;
    await client
      .delete(pods, { namespace, name }, { uid, gracePeriodSeconds: 0, signal })
      .catch(ignore("NotFound", "Conflict"));
  };
  return {
    writes: () => writes,
    async run(signal) {
      await registerNode(client, nodeName);
      const failed = (pod: Pod, error: unknown): void => {
        if (signal.aborted || isReasonOf(error, "NotFound")) return;
        if (!isReasonOf(error, "ServiceUnavailable")) throw error;
        setTimeout(() => react(pod), awayMs);
      };
      const react = (pod: Pod): void => void act(pod, signal).catch((error: unknown) => failed(pod, error));
      informer.addHandler({ onAdd: react, onUpdate: (_old, pod) => react(pod), onDelete: () => undefined });
      await informer.run(signal);
    },
  };
}

/** Room for every Pod of every test, so that only the scheduler's arithmetic says no. */
const allocatable = { cpu: "1000", memory: "1000Gi", pods: "100000", "ephemeral-storage": "1000Gi" };

async function registerNode(client: Client, name: string): Promise<void> {
  const node: Node = { apiVersion: "v1", kind: "Node", metadata: { name, labels: { "kubernetes.io/hostname": name } } };
  await client.create(nodes, node).catch(ignore("AlreadyExists"));
  const now = new Date().toISOString().replace(/\.\d+Z/, "Z");
  const ready = {
    type: "Ready",
    status: "True",
    reason: "KubeletReady",
    message: "",
    lastHeartbeatTime: now,
    lastTransitionTime: now,
  };
  const status = { capacity: allocatable, allocatable, conditions: [ready] };
  await client.patch(nodes, { name }, { type: "merge", body: { status } }, { subresource: "status" });
  // Kubernetes taints a node that has not said yet that it is ready; taking the taint away is the node controller's work.
  await client.patch(nodes, { name }, { type: "merge", body: { spec: { taints: null } } });
}

async function patchStatus(client: Client, pod: Pod, status: object, signal: AbortSignal): Promise<void> {
  const { namespace = "", name } = pod.metadata;
  const body = { metadata: { uid: pod.metadata.uid }, status };
  await client
    .patch(pods, { namespace, name }, { type: "strategic", body }, { subresource: "status", signal })
    .catch(ignore("NotFound", "Conflict"));
}

function startedStatus(pod: Pod, ip: string): object {
  const isMissing = (pod.spec?.containers ?? []).some(({ image }) => image === missingImage);
  const startedAt = new Date().toISOString().replace(/\.\d+Z/, "Z");
  const state = isMissing
    ? { waiting: { reason: "ImagePullBackOff", message: `Back-off pulling image "${missingImage}"` } }
    : { running: { startedAt } };
  const containerStatuses = containersWith(pod, { ready: !isMissing, started: !isMissing, state });
  const ready = isMissing ? "False" : "True";
  const conditions = ["Initialized", "ContainersReady", "Ready"].map((type) => ({
    type,
    status: type === "Initialized" ? "True" : ready,
    lastTransitionTime: startedAt,
  }));
  const address = isMissing ? {} : { podIP: ip, podIPs: [{ ip }] };
  return { phase: isMissing ? "Pending" : "Running", startTime: startedAt, ...address, conditions, containerStatuses };
}

function endedStatus(pod: Pod, exitCode: number): object {
  const finishedAt = new Date().toISOString().replace(/\.\d+Z/, "Z");
  const reason = exitCode === 0 ? "Completed" : "Error";
  const state = { terminated: { exitCode, reason, startedAt: finishedAt, finishedAt } };
  const conditions = [{ type: "Ready", status: "False", reason: exitCode === 0 ? "PodCompleted" : "PodFailed" }];
  const containerStatuses = containersWith(pod, { ready: false, started: false, state });
  return { phase: exitCode === 0 ? "Succeeded" : "Failed", conditions, containerStatuses };
}

function crashingStatus(pod: Pod, exitCode: number): object {
  const finishedAt = new Date().toISOString().replace(/\.\d+Z/, "Z");
  const terminated = { exitCode, reason: "Error", startedAt: finishedAt, finishedAt, message: "its last line\n" };
  const state = { waiting: { reason: "CrashLoopBackOff", message: "back-off 10s restarting failed container" } };
  const fields = { ready: false, started: false, restartCount: 2, state, lastState: { terminated } };
  const conditions = [{ type: "Ready", status: "False", reason: "ContainersNotReady", lastTransitionTime: finishedAt }];
  return { phase: "Running", conditions, containerStatuses: containersWith(pod, fields) };
}

function containersWith(pod: Pod, fields: object): object[] {
  return (pod.spec?.containers ?? []).map(({ name, image = "" }) => ({
    name,
    image,
    imageID: image,
    restartCount: 0,
    ...fields,
  }));
}
