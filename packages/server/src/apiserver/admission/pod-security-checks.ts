import type { Container, PodSpec, SecurityContext } from "@agent-sandbox/api";

/** The three levels of the Pod Security Standards. */
export type SecurityLevel = "privileged" | "baseline" | "restricted";

/** What is wrong, as `reason (detail)`, or undefined. */
type Check = (spec: PodSpec, containers: readonly Container[]) => string | undefined;

/** Every violation in Kubernetes' words and order, joined by commas; empty when there is none. */
export function podSecurityViolations(spec: PodSpec, level: SecurityLevel): string {
  if (level === "privileged") return "";
  const containers = [
    ...(spec.initContainers ?? []),
    ...spec.containers,
    ...((spec.ephemeralContainers ?? []) as Container[]),
  ];
  const checks = level === "baseline" ? baselineChecks : restrictedChecks;
  return checks
    .map((check) => check(spec, containers))
    .filter((fault) => fault !== undefined)
    .join(", ");
}

const defaultCapabilities = new Set([
  "AUDIT_WRITE",
  "CHOWN",
  "DAC_OVERRIDE",
  "FOWNER",
  "FSETID",
  "KILL",
  "MKNOD",
  "NET_BIND_SERVICE",
  "SETFCAP",
  "SETGID",
  "SETPCAP",
  "SETUID",
  "SYS_CHROOT",
]);

const safeSysctls = new Set([
  "kernel.shm_rmid_forced",
  "net.ipv4.ip_local_port_range",
  "net.ipv4.ip_local_reserved_ports",
  "net.ipv4.ip_unprivileged_port_start",
  "net.ipv4.ping_group_range",
  "net.ipv4.tcp_fin_timeout",
  "net.ipv4.tcp_keepalive_intvl",
  "net.ipv4.tcp_keepalive_probes",
  "net.ipv4.tcp_keepalive_time",
  "net.ipv4.tcp_rmem",
  "net.ipv4.tcp_syncookies",
  "net.ipv4.tcp_wmem",
]);

const safeSelinuxTypes = new Set(["", "container_engine_t", "container_init_t", "container_kvm_t", "container_t"]);
const restrictedVolumeTypes = new Set([
  "configMap",
  "csi",
  "downwardAPI",
  "emptyDir",
  "ephemeral",
  "image",
  "persistentVolumeClaim",
  "projected",
  "secret",
]);

const appArmor: Check = (spec, containers) => {
  const setters = settersOf(spec, containers, (context) => context?.appArmorProfile?.type === "Unconfined");
  return setters === ""
    ? undefined
    : `forbidden AppArmor profile (${setters} must not set AppArmor profile type to "Unconfined")`;
};

const baselineCapabilities: Check = (_spec, containers) => {
  const [who, added] = addedBeyond(containers, defaultCapabilities);
  return who === ""
    ? undefined
    : `non-default capabilities (${who} must not include ${added} in securityContext.capabilities.add)`;
};

const hostNamespaces: Check = (spec) => {
  const used = (["hostNetwork", "hostPID", "hostIPC"] as const).filter((name) => spec[name] === true);
  return used.length === 0 ? undefined : `host namespaces (${used.map((name) => `${name}=true`).join(", ")})`;
};

const hostPathVolumes: Check = (spec) => {
  const names = (spec.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined).map(({ name }) => name);
  return names.length === 0 ? undefined : `hostPath volumes (${plural("volume", names)} ${quoted(names)})`;
};

const hostPorts: Check = (_spec, containers) => {
  const bad = containers.filter(({ ports }) => ports?.some(({ hostPort }) => (hostPort ?? 0) !== 0));
  if (bad.length === 0) return undefined;
  const ports = [...new Set(bad.flatMap((container) => (container.ports ?? []).map(({ hostPort }) => hostPort ?? 0)))];
  const used = ports.filter((port) => port !== 0).sort((a, b) => a - b);
  return `hostPort (${whoIs(bad)} ${bad.length === 1 ? "uses" : "use"} ${plural("hostPort", used)} ${used.join(", ")})`;
};

const privileged: Check = (_spec, containers) => {
  const bad = containers.filter(({ securityContext }) => securityContext?.privileged === true);
  return bad.length === 0 ? undefined : `privileged (${whoIs(bad)} must not set securityContext.privileged=true)`;
};

const procMount: Check = (spec, containers) => {
  const allowsUnmasked = spec.hostUsers === false;
  const bad = containers.filter(({ securityContext }) => (securityContext?.procMount ?? "Default") !== "Default");
  if (bad.length === 0 || allowsUnmasked) return undefined;
  const types = [...new Set(bad.map(({ securityContext }) => securityContext?.procMount ?? ""))].sort();
  return `procMount (${whoIs(bad)} must not set securityContext.procMount to ${quoted(types)})`;
};

const seLinuxOptions: Check = (spec, containers) => {
  const contexts = [spec.securityContext, ...containers.map(({ securityContext }) => securityContext)];
  const types = new Set(
    contexts.map((context) => context?.seLinuxOptions?.type ?? "").filter((type) => !safeSelinuxTypes.has(type)),
  );
  const hasUser = contexts.some((context) => (context?.seLinuxOptions?.user ?? "") !== "");
  const hasRole = contexts.some((context) => (context?.seLinuxOptions?.role ?? "") !== "");
  const faults = [
    ...(types.size === 0 ? [] : [`${plural("type", [...types])} ${quoted([...types].sort())}`]),
    ...(hasUser ? ["user may not be set"] : []),
    ...(hasRole ? ["role may not be set"] : []),
  ];
  if (faults.length === 0) return undefined;
  const setters = settersOf(spec, containers, (context) => {
    const options = context?.seLinuxOptions;
    return (
      options !== undefined &&
      (!safeSelinuxTypes.has(options.type ?? "") || (options.user ?? "") !== "" || (options.role ?? "") !== "")
    );
  });
  return `seLinuxOptions (${setters} set forbidden securityContext.seLinuxOptions: ${faults.join("; ")})`;
};

const baselineSeccomp: Check = (spec, containers) => {
  const setters = settersOf(spec, containers, (context) => context?.seccompProfile?.type === "Unconfined");
  return setters === ""
    ? undefined
    : `seccompProfile (${setters} must not set securityContext.seccompProfile.type to "Unconfined")`;
};

const sysctls: Check = (spec) => {
  const bad = (spec.securityContext?.sysctls ?? []).map(({ name }) => name).filter((name) => !safeSysctls.has(name));
  return bad.length === 0 ? undefined : `forbidden sysctls (${bad.join(", ")})`;
};

const windowsHostProcess: Check = (spec, containers) => {
  const setters = settersOf(spec, containers, (context) => context?.windowsOptions?.hostProcess === true);
  return setters === ""
    ? undefined
    : `hostProcess (${setters} must not set securityContext.windowsOptions.hostProcess=true)`;
};

const privilegeEscalation: Check = (_spec, containers) => {
  const bad = containers.filter(({ securityContext }) => securityContext?.allowPrivilegeEscalation !== false);
  return bad.length === 0
    ? undefined
    : `allowPrivilegeEscalation != false (${whoIs(bad)} must set securityContext.allowPrivilegeEscalation=false)`;
};

const restrictedCapabilities: Check = (_spec, containers) => {
  const keeping = containers.filter(
    ({ securityContext }) => !(securityContext?.capabilities?.drop ?? []).includes("ALL"),
  );
  const [adding, added] = addedBeyond(containers, new Set(["NET_BIND_SERVICE"]));
  const faults = [
    ...(keeping.length === 0 ? [] : [`${whoIs(keeping)} must set securityContext.capabilities.drop=["ALL"]`]),
    ...(adding === "" ? [] : [`${adding} must not include ${added} in securityContext.capabilities.add`]),
  ];
  return faults.length === 0 ? undefined : `unrestricted capabilities (${faults.join("; ")})`;
};

const restrictedVolumes: Check = (spec) => {
  const typed = (spec.volumes ?? []).map((volume) => ({
    name: volume.name,
    type: Object.keys(volume).find((key) => key !== "name") ?? "emptyDir",
  }));
  const bad = typed.filter(({ type }) => !restrictedVolumeTypes.has(type));
  if (bad.length === 0) return undefined;
  const types = [...new Set(bad.map(({ type }) => type))].sort();
  const names = bad.map(({ name }) => name);
  return `restricted volume types (${plural("volume", names)} ${quoted(names)} ${bad.length === 1 ? "uses" : "use"} restricted volume ${plural("type", types)} ${quoted(types)})`;
};

const runAsNonRoot: Check = (spec, containers) => {
  const setters = settersOf(spec, containers, (context) => context?.runAsNonRoot === false);
  if (setters !== "") return `runAsNonRoot != true (${setters} must not set securityContext.runAsNonRoot=false)`;
  if (spec.securityContext?.runAsNonRoot === true) return undefined;
  const silent = containers.filter(({ securityContext }) => securityContext?.runAsNonRoot !== true);
  return silent.length === 0
    ? undefined
    : `runAsNonRoot != true (pod or ${whoIs(silent)} must set securityContext.runAsNonRoot=true)`;
};

const runAsUser: Check = (spec, containers) => {
  const setters = settersOf(spec, containers, (context) => context?.runAsUser === 0);
  return setters === "" ? undefined : `runAsUser=0 (${setters} must not set runAsUser=0)`;
};

const restrictedSeccomp: Check = (spec, containers) => {
  const allowed = (context: SecurityContext | PodSpec["securityContext"]) =>
    ["RuntimeDefault", "Localhost"].includes(context?.seccompProfile?.type ?? "");
  const isBad = (context: SecurityContext | PodSpec["securityContext"]) =>
    context?.seccompProfile?.type !== undefined && !allowed(context);
  const setters = settersOf(spec, containers, isBad);
  if (setters !== "") {
    const types = [spec.securityContext, ...containers.map(({ securityContext }) => securityContext)]
      .filter(isBad)
      .map((context) => context?.seccompProfile?.type ?? "");
    return `seccompProfile (${setters} must not set securityContext.seccompProfile.type to ${quoted([...new Set(types)].sort())})`;
  }
  if (allowed(spec.securityContext)) return undefined;
  const silent = containers.filter(({ securityContext }) => !allowed(securityContext));
  if (silent.length === 0) return undefined;
  return `seccompProfile (pod or ${whoIs(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`;
};

const sharedChecks = {
  first: [appArmor],
  hosts: [hostNamespaces],
  rest: [hostPorts, privileged, procMount, seLinuxOptions],
};
const baselineChecks: readonly Check[] = [
  ...sharedChecks.first,
  baselineCapabilities,
  ...sharedChecks.hosts,
  hostPathVolumes,
  ...sharedChecks.rest,
  baselineSeccomp,
  sysctls,
  windowsHostProcess,
];
/** The restricted level replaces the baseline's rules on capabilities, volumes and seccomp with stricter ones. */
const restrictedChecks: readonly Check[] = [
  ...sharedChecks.first,
  ...sharedChecks.hosts,
  ...sharedChecks.rest,
  sysctls,
  windowsHostProcess,
  privilegeEscalation,
  restrictedCapabilities,
  restrictedVolumes,
  runAsNonRoot,
  runAsUser,
  restrictedSeccomp,
];

function addedBeyond(containers: readonly Container[], allowed: ReadonlySet<string>): [string, string] {
  const beyond = (container: Container) =>
    (container.securityContext?.capabilities?.add ?? []).filter((name) => !allowed.has(name));
  const bad = containers.filter((container) => beyond(container).length > 0);
  return bad.length === 0 ? ["", ""] : [whoIs(bad), quoted([...new Set(bad.flatMap(beyond))].sort())];
}

type AnyContext = SecurityContext | PodSpec["securityContext"];

function settersOf(
  spec: PodSpec,
  containers: readonly Container[],
  isBad: (context: AnyContext & SecurityContext) => boolean,
): string {
  const judge = (context: AnyContext) => context !== undefined && isBad(context as SecurityContext);
  const bad = containers.filter(({ securityContext }) => judge(securityContext));
  const parts = [...(judge(spec.securityContext) ? ["pod"] : []), ...(bad.length === 0 ? [] : [whoIs(bad)])];
  return parts.join(" and ");
}

function whoIs(containers: readonly Container[]): string {
  const names = containers.map(({ name }) => name);
  return `${plural("container", names)} ${quoted(names)}`;
}

function plural(noun: string, list: readonly unknown[]): string {
  return list.length === 1 ? noun : `${noun}s`;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(", ");
}
