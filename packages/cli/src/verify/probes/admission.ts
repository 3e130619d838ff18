import { ignore } from "@agent-sandbox/api/api-error";
import type { Pod, PodSpec } from "@agent-sandbox/api/builtin.gen";
import { pods } from "@agent-sandbox/api/resource";
import { pauseFor } from "@agent-sandbox/sdk/timing/pause";
import type { Outcome } from "../attempt.ts";
import type { Ground } from "../ground.ts";
import type { LookProbe } from "../probe.ts";

/** Long enough for a node to start a Pod, or to say that it never will. */
const decisionMs = 30_000;
const lookEveryMs = 100;

const runcId = "admission/runc";

/** A cluster that has no class of that name refuses it, and starts a Pod without a class with whatever its nodes have. */
const needsDefaultRuntime =
  "there is no such class, and what runs a Pod that names none is a setting of the nodes, which the API does not tell";

type Wish = (spec: PodSpec) => PodSpec;

const withContainer =
  (fields: object): Wish =>
  (spec) => ({ ...spec, containers: spec.containers.map((container) => ({ ...container, ...fields })) });

const withHostPath =
  (path: string): Wish =>
  (spec) => ({
    ...withContainer({ volumeMounts: [{ name: "host", mountPath: "/host" }] })(spec),
    volumes: [{ name: "host", hostPath: { path } }],
  });

/** Pods that give away the machine, and what each asks for. */
const wishes: readonly { readonly id: string; readonly tries: string; readonly wish: Wish }[] = [
  {
    id: "admission/privileged",
    tries: "start a privileged Pod",
    wish: withContainer({ securityContext: { privileged: true } }),
  },
  {
    id: "admission/host-network",
    tries: "start a Pod in the machine's network",
    wish: (spec) => ({ ...spec, hostNetwork: true }),
  },
  {
    id: "admission/host-pid",
    tries: "start a Pod among the machine's processes",
    wish: (spec) => ({ ...spec, hostPID: true }),
  },
  {
    id: "admission/host-ipc",
    tries: "start a Pod with the machine's shared memory",
    wish: (spec) => ({ ...spec, hostIPC: true }),
  },
  { id: "admission/host-path", tries: "start a Pod with the machine's files", wish: withHostPath("/etc") },
  {
    id: "admission/docker-socket",
    tries: "start a Pod with Docker's socket",
    wish: withHostPath("/var/run/docker.sock"),
  },
  {
    id: runcId,
    tries: "start a Pod on the machine's kernel",
    wish: (spec) => ({ ...spec, runtimeClassName: "runc" }),
  },
];

/** That a Pod which gives away the machine is never started. */
export const admissionProbes: readonly LookProbe[] = wishes.map(({ id, tries, wish }) => ({
  id,
  tries,
  look: async (ground, signal) => {
    const asked = await askFor(ground, id, wish, signal);
    if (id === runcId && !ground.isOwn && !asked.through) return needsDefaultRuntime;
    return { attempts: [asked], controls: [await plainPod(ground, signal)] };
  },
}));

/** One plain Pod is the control of all: what is refused to it is not refused for its wish. */
const plainPods = new WeakMap<Ground, Promise<Outcome>>();

function plainPod(ground: Ground, signal: AbortSignal): Promise<Outcome> {
  const known = plainPods.get(ground) ?? askFor(ground, "admission/plain", (spec) => spec, signal);
  plainPods.set(ground, known);
  return known;
}

/** On our own engine the Pod is made, since the node decides; on a cluster the API is only asked whether it would take it. */
async function askFor(ground: Ground, id: string, wish: Wish, signal: AbortSignal): Promise<Outcome> {
  const { engine, namespace, isOwn } = ground;
  const name = `${ground.marks.host.name}-${id.replaceAll("/", "-")}`;
  const pod = podFor(ground, name, wish);
  try {
    await engine.client.create(pods, pod, { dryRun: !isOwn, signal });
  } catch (error) {
    signal.throwIfAborted();
    return { through: false, detail: error instanceof Error ? error.message : String(error) };
  }
  if (!isOwn) return { through: true, detail: `the API takes such a Pod in namespace ${namespace}` };
  try {
    return await decision(ground, name, signal);
  } finally {
    await engine.client.delete(pods, { namespace, name }, { gracePeriodSeconds: 0 }).catch(ignore("NotFound"));
  }
}

function podFor({ namespace, image }: Ground, name: string, wish: Wish): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace },
    spec: wish({
      automountServiceAccountToken: false,
      restartPolicy: "Never",
      terminationGracePeriodSeconds: 0,
      containers: [{ name: "main", image: image ?? "host", command: ["sleep", "60"] }],
    }),
  };
}

async function decision({ engine, namespace }: Ground, name: string, signal: AbortSignal): Promise<Outcome> {
  const endMs = performance.now() + decisionMs;
  while (performance.now() < endMs) {
    const { status } = await engine.client.get(pods, { namespace, name }, { signal });
    const isStarted = status?.containerStatuses?.some(({ state }) => state?.running !== undefined) === true;
    if (isStarted) return { through: true, detail: "it runs" };
    if (status?.phase === "Failed") return { through: false, detail: status.message ?? status.reason ?? "failed" };
    await pauseFor(lookEveryMs, signal);
  }
  return { through: false, unknown: true, detail: `nothing was decided within ${decisionMs / 1000} s` };
}
