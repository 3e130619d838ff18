import type { Container, Pod, Volume } from "@agent-sandbox/api";
import type { CgroupLimit } from "../host/cgroup.ts";
import type { RuntimeFeatures, RuntimeName } from "../host/container.ts";

/** Why this node will never run a pod; it becomes the pod's reason and message. */
export interface Refusal {
  readonly reason: string;
  readonly message: string;
}

/** What the operator and the machine allow. */
export interface NodeLimits {
  readonly allowRunc: boolean;
  readonly hostPathAllowList: readonly string[];
  readonly runtimes: readonly RuntimeFeatures[];
  readonly architecture: string;
  /** Limits this machine can enforce; a pod that names another is refused, because it would run without. */
  readonly cgroupLimits: readonly CgroupLimit[];
}

/** The runtime class a pod gets when it names none. */
const defaultRuntimeClass = "gvisor";

/** Which runtime a pod's class means here, or why it has none. Never a silent fallback. */
export function runtimeFor(pod: Pod, limits: NodeLimits): RuntimeName | Refusal {
  const name = pod.spec?.runtimeClassName ?? defaultRuntimeClass;
  if (name === "runc" && !limits.allowRunc) {
    return refuse(
      "RuntimeClassForbidden",
      `runtime class "runc" is not allowed on this node; start it with --allow-runc`,
    );
  }
  const runtime = name === "gvisor" ? "runsc" : name === "runc" ? "runc" : undefined;
  if (runtime === undefined) {
    return refuse(
      "RuntimeClassUnsupported",
      `runtime class ${JSON.stringify(name)} is not available on this node; it has gvisor`,
    );
  }
  const features = limits.runtimes.find((candidate) => candidate.runtime === runtime);
  if (features?.available !== true) {
    const why = features?.reason ?? `${runtime} was not found; run agent-sandbox doctor --fix`;
    return refuse("RuntimeMissing", `runtime class ${JSON.stringify(name)} cannot be used: ${why}`);
  }
  return runtime;
}

/** The first thing about a pod that this node cannot do, if any. */
export function refusalOf(pod: Pod, limits: NodeLimits): Refusal | undefined {
  const runtime = runtimeFor(pod, limits);
  if (typeof runtime !== "string") return runtime;
  return podRefusal(pod) ?? volumesRefusal(pod, limits) ?? containersRefusal(pod, runtime, limits);
}

function podRefusal({ spec }: Pod): Refusal | undefined {
  const unsupported = [
    [spec?.hostNetwork === true, "hostNetwork"],
    [spec?.hostPID === true, "hostPID"],
    [spec?.hostIPC === true, "hostIPC"],
    [spec?.hostUsers === false, "hostUsers: false"],
    [(spec?.resourceClaims ?? []).length > 0, "resourceClaims"],
    [(spec?.ephemeralContainers ?? []).length > 0, "ephemeralContainers"],
    [spec?.os !== undefined && spec.os.name !== "linux", "an operating system other than linux"],
    [spec?.setHostnameAsFQDN === true, "setHostnameAsFQDN"],
    [spec?.securityContext?.windowsOptions !== undefined, "windowsOptions"],
    [spec?.securityContext?.seLinuxOptions !== undefined, "seLinuxOptions"],
  ] as const;
  const found = unsupported.find(([present]) => present);
  return found && refuse("UnsupportedPodFeature", `${found[1]} is not supported on this node`);
}

const supportedVolumes = [
  "configMap",
  "downwardAPI",
  "emptyDir",
  "hostPath",
  "persistentVolumeClaim",
  "projected",
  "secret",
];

function volumesRefusal({ spec }: Pod, limits: NodeLimits): Refusal | undefined {
  for (const volume of spec?.volumes ?? []) {
    const source = Object.keys(volume).find((key) => key !== "name") as keyof Volume | undefined;
    // A volume without a source is an emptyDir, as on Kubernetes.
    if (source === undefined) continue;
    if (source === "ephemeral") continue;
    if (!supportedVolumes.includes(source)) {
      return refuse(
        "UnsupportedVolume",
        `volume ${JSON.stringify(volume.name)}: ${source} volumes are not supported on this node`,
      );
    }
    const path = volume.hostPath?.path;
    if (path !== undefined && !isBelowAny(path, limits.hostPathAllowList)) {
      return refuse(
        "HostPathForbidden",
        `volume ${JSON.stringify(volume.name)}: host path ${path} is not on this node's allow-list`,
      );
    }
  }
  return undefined;
}

function isBelowAny(path: string, prefixes: readonly string[]): boolean {
  if (path.split("/").includes("..")) return false;
  return prefixes.some((prefix) => path === prefix || path.startsWith(prefix.endsWith("/") ? prefix : `${prefix}/`));
}

function containersRefusal(pod: Pod, runtime: RuntimeName, limits: NodeLimits): Refusal | undefined {
  const containers = pod.spec?.containers ?? [];
  const initContainers = pod.spec?.initContainers ?? [];
  const features = limits.runtimes.find((candidate) => candidate.runtime === runtime);
  if (containers.length + initContainers.length > 1 && features?.multiContainer === false) {
    return refuse("UnsupportedPodFeature", `${runtime} on this node cannot run several containers in one pod`);
  }
  for (const container of [...initContainers, ...containers]) {
    const refusal = containerRefusal(container) ?? limitRefusal(container, limits.cgroupLimits);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

const countedResources = new Set(["cpu", "memory", "ephemeral-storage"]);

function containerRefusal(container: Container): Refusal | undefined {
  const prefix = `container ${JSON.stringify(container.name)}`;
  const { securityContext, resources } = container;
  if (securityContext?.privileged === true)
    return refuse("UnsupportedPodFeature", `${prefix}: privileged is not supported on this node`);
  if ((container.volumeDevices ?? []).length > 0)
    return refuse("UnsupportedVolume", `${prefix}: volumeDevices are not supported on this node`);
  if (securityContext?.procMount === "Unmasked")
    return refuse("UnsupportedPodFeature", `${prefix}: procMount Unmasked is not supported on this node`);
  if (securityContext?.seccompProfile?.type === "Localhost") {
    return refuse("UnsupportedPodFeature", `${prefix}: a Localhost seccomp profile is not supported on this node`);
  }
  if ((container.ports ?? []).some(({ hostPort }) => hostPort !== undefined && hostPort !== 0)) {
    return refuse("UnsupportedPodFeature", `${prefix}: hostPort is not supported on this node`);
  }
  const names = Object.keys({ ...resources?.limits, ...resources?.requests });
  const device = names.find((name) => !countedResources.has(name));
  if (device !== undefined) {
    return refuse(
      "UnexpectedAdmissionError",
      `${prefix}: resource ${device} is not offered by this node (device plugins are not supported)`,
    );
  }
  if ((container.volumeMounts ?? []).some(({ mountPropagation = "None" }) => mountPropagation !== "None")) {
    return refuse("UnsupportedVolume", `${prefix}: mount propagation is not supported on this node`);
  }
  return undefined;
}

function limitRefusal({ name, resources }: Container, enforced: readonly CgroupLimit[]): Refusal | undefined {
  const missing = (["cpu", "memory"] as const).find(
    (limit) => resources?.limits?.[limit] !== undefined && !enforced.includes(limit),
  );
  return (
    missing &&
    refuse(
      "LimitUnenforceable",
      `container ${JSON.stringify(name)}: this machine cannot enforce limits.${missing}: its cgroups have no ${missing} controller`,
    )
  );
}

function refuse(reason: string, message: string): Refusal {
  return { reason, message };
}
