import {
  annotationKeys,
  findCondition,
  formatTimestamp,
  type Pod,
  type Service,
  semanticEqual,
} from "@agent-sandbox/api";

/** The Service that published clients look for. */
export const routerServiceName = "sandbox-router-svc";
/** The Pod behind it: not a process, but the door through which a port-forward reaches the router. */
export const routerPodName = "sandbox-router";
/** The port that published clients forward to. */
const routerPort = 8080;
/** Keeps every scheduler away from the Pod. */
const noScheduler = "agent-sandbox.dev/none";
const podLabels = {
  app: "sandbox-router",
  "app.kubernetes.io/name": "sandbox-router",
  "app.kubernetes.io/component": "sandbox-router",
};

/** What one pass looks at. */
export interface Observed {
  readonly namespace: string;
  /** Whether published clients may look here: the system's namespace, or one with sandboxes or claims. */
  readonly isWanted: boolean;
  readonly service: Service | undefined;
  readonly pod: Pod | undefined;
  /** Where the router answers. */
  readonly address: string;
  readonly nowMs: number;
}

/** One step. */
export type Action =
  | { readonly do: "create-service"; readonly service: Service }
  | { readonly do: "create-pod"; readonly pod: Pod }
  | { readonly do: "set-pod-status"; readonly uid: string; readonly status: NonNullable<Pod["status"]> };

/** Decides what a namespace lacks for clients that tunnel to the router. A Service that a user made is left alone. */
export function planRouterService({ namespace, isWanted, service, pod, address, nowMs }: Observed): readonly Action[] {
  if (!isWanted) return [];
  const actions: Action[] = [];
  if (service === undefined) actions.push({ do: "create-service", service: routerService(namespace) });
  if (pod === undefined) actions.push({ do: "create-pod", pod: routerPod(namespace) });
  else if (
    pod.metadata.annotations?.[annotationKeys.virtualPod] === "router" &&
    pod.metadata.deletionTimestamp === undefined
  ) {
    const status = runningStatus(pod, address, nowMs);
    if (!semanticEqual(statusEssence(pod.status), statusEssence(status)))
      actions.push({ do: "set-pod-status", uid: pod.metadata.uid ?? "", status });
  }
  return actions;
}

function routerService(namespace: string): Service {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace, name: routerServiceName, labels: podLabels },
    spec: {
      type: "ClusterIP",
      selector: { app: podLabels.app },
      ports: [{ name: "proxy", port: routerPort, targetPort: routerPort, protocol: "TCP" }],
    },
  };
}

/** It says of itself what the restricted Pod Security level asks for, so that no namespace refuses it. */
function routerPod(namespace: string): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      namespace,
      name: routerPodName,
      labels: podLabels,
      annotations: { [annotationKeys.virtualPod]: "router" },
    },
    spec: {
      schedulerName: noScheduler,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: 0,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          name: "router",
          image: "host.agent-sandbox.local/router",
          ports: [{ name: "proxy", containerPort: routerPort, protocol: "TCP" }],
          resources: { requests: { cpu: "0", memory: "0" }, limits: { cpu: "0", memory: "0" } },
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
        },
      ],
    },
  };
}

function runningStatus({ status, spec }: Pod, address: string, nowMs: number): NonNullable<Pod["status"]> {
  const nowText = formatTimestamp(nowMs);
  const startTime = status?.startTime ?? nowText;
  const conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map((type) => {
    const old = findCondition(status?.conditions, type);
    const since = old?.status === "True" ? old.lastTransitionTime : undefined;
    return { type, status: "True", lastTransitionTime: since ?? nowText };
  });
  const containerStatuses = (spec?.containers ?? []).map(({ name, image = "" }) => ({
    name,
    image,
    imageID: "",
    ready: true,
    started: true,
    restartCount: 0,
    state: { running: { startedAt: startTime } },
  }));
  return {
    phase: "Running",
    startTime,
    podIP: address,
    podIPs: [{ ip: address }],
    hostIP: address,
    conditions,
    containerStatuses,
  };
}

function statusEssence(status: Pod["status"]): unknown {
  const conditions = (status?.conditions ?? []).map(({ type, status: value }) => `${type}=${value}`);
  return { phase: status?.phase, podIP: status?.podIP, conditions: conditions.sort() };
}
