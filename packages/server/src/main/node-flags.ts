import { isIP } from "node:net";
import type { Taint } from "@agent-sandbox/api";
import { tryParseGoDuration } from "@agent-sandbox/api";
import {
  FlagError,
  type FlagTable,
  type FlagValues,
  goFlagsUsage,
  parseGoFlags,
} from "../controllers/process/go-flags.ts";
import { ArchiveError } from "../node/archive/archive-error.ts";
import { type ArchiveFlags, parseArchiveFlags } from "../node/archive/archive-settings.ts";
import { collectionDefaults } from "../node/images/plan-collection.ts";
import { sandboxesAheadDefault } from "./engine-config.ts";
import { imageLimits } from "./image-limits.ts";
import { type LimitFlags, parseLimitFlags } from "./limit-flags.ts";

/** The flags of `agent-sandbox node`; where the kubelet has one for the same thing, it is called the same. Exported for tests. */
export const nodeFlags = {
  version: { kind: "bool", fallback: false, help: "Print the version and exit." },
  kubeconfig: { kind: "string", fallback: "", help: "Credentials of system:node:NAME; default: those of the Pod." },
  "data-dir": { kind: "string", fallback: "/var/lib/agent-sandbox-node", help: "Where everything of the node lies." },
  "hostname-override": { kind: "string", fallback: "", help: "Name of the Node; default: the host's name." },
  "node-ip": { kind: "string", fallback: "", help: "Address at which the API server dials this node." },
  port: { kind: "int", fallback: 10_250, help: "Port of the kubelet endpoint; 0: any." },
  "tls-cert-file": { kind: "string", fallback: "", help: "Its certificate, PEM; default: one signed by itself." },
  "tls-private-key-file": { kind: "string", fallback: "", help: "Its key, PEM." },
  "client-ca-file": {
    kind: "string",
    fallback: "",
    help: "Authorities of client certificates, PEM; default: those the API server publishes, where the node may read them.",
  },
  "pod-cidr": { kind: "string", fallback: "", help: "A /16 that leads to this node; default: a free one." },
  "cluster-domain": { kind: "string", fallback: "cluster.local", help: "DNS suffix of the cluster." },
  "max-pods": { kind: "int", fallback: 110, help: "Pods this node takes at most." },
  "node-labels": { kind: "string", fallback: "", help: "Labels of the Node, key=value, separated by commas." },
  "register-with-taints": { kind: "string", fallback: "", help: "Taints of a new Node, key=value:effect." },
  "allow-runc": { kind: "bool", fallback: false, help: "Let Pods ask for the trusted tier, runc." },
  "allow-host-path": { kind: "string", fallback: "", help: "Directories for hostPath volumes, separated by commas." },
  "sandboxes-ahead": {
    kind: "int",
    fallback: sandboxesAheadDefault,
    help: "Sandboxes kept running for Pods that are still to come; 0: none.",
  },
  "image-gc-high-threshold": {
    kind: "int",
    fallback: collectionDefaults.highPercent,
    help: "Percent of the disk in use from which on unused images go.",
  },
  "image-gc-low-threshold": {
    kind: "int",
    fallback: collectionDefaults.lowPercent,
    help: "Percent below which no more of them go.",
  },
  "minimum-image-ttl-duration": {
    kind: "duration",
    fallback: collectionDefaults.ageMinMs,
    help: "How long an image stays after its last use.",
  },
  "system-reserved-memory": {
    kind: "string",
    fallback: "",
    help: "Memory that no sandbox gets; default: a tenth of the machine's, at least 512Mi.",
  },
  "system-reserved-disk": {
    kind: "string",
    fallback: "",
    help: "Disk that is kept free; default: a twentieth of it, at least 1Gi and at most 10Gi.",
  },
  "default-pod-memory": {
    kind: "string",
    fallback: "",
    help: "Memory of a Pod that names no limit; default: a quarter of what sandboxes have, 512Mi to 4Gi.",
  },
  "default-pod-disk": {
    kind: "string",
    fallback: "",
    help: "Writable layer of a container that names no limit; default: 10Gi.",
  },
  "pod-max-pids": {
    kind: "string",
    fallback: "",
    help: "Processes and threads of a Pod, the runtime's included; default: 4096.",
  },
  archive: {
    kind: "string",
    fallback: "",
    help: "Where archived sandboxes go: a directory, or s3://BUCKET/PREFIX; default: nowhere.",
  },
  "archive-endpoint": { kind: "string", fallback: "", help: "The S3 service of the archive, https://." },
  "archive-credentials": { kind: "string", fallback: "", help: "A file of root's with its access key, as AWS has it." },
  "log-level": { kind: "string", fallback: "info", help: "trace, debug, info, warn or error." },
} as const satisfies FlagTable;

/** Those of them that are about unused images. */
export function imageLimitsOf(flags: NodeFlagValues): ReturnType<typeof imageLimits> {
  return imageLimits({
    imageGcHighThreshold: flags["image-gc-high-threshold"],
    imageGcLowThreshold: flags["image-gc-low-threshold"],
    minimumImageTtlDuration: flags["minimum-image-ttl-duration"],
  });
}

/** Those of them that are about the archive. */
export function archiveFlagsOf(flags: NodeFlagValues): ArchiveFlags {
  const { archive, "archive-endpoint": archiveEndpoint, "archive-credentials": archiveCredentials } = flags;
  return {
    ...(archive !== "" && { archive }),
    ...(archiveEndpoint !== "" && { archiveEndpoint }),
    ...(archiveCredentials !== "" && { archiveCredentials }),
  };
}

/** Those of them that share the machine out. */
export function limitFlagsOf(flags: NodeFlagValues): LimitFlags {
  return {
    systemReservedMemory: flags["system-reserved-memory"],
    systemReservedDisk: flags["system-reserved-disk"],
    defaultPodMemory: flags["default-pod-memory"],
    defaultPodDisk: flags["default-pod-disk"],
    podMaxPids: flags["pod-max-pids"],
  };
}

/** The values of the flags. */
export type NodeFlagValues = FlagValues<typeof nodeFlags>;

const taintEffects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/** Reads the flags; throws `FlagError` with everything that is wrong with them. */
export function parseNodeFlags(args: readonly string[]): NodeFlagValues {
  const { values, rest } = parseGoFlags(nodeFlags, args, tryParseGoDuration);
  const errors = [...rest.map((word) => `unexpected argument "${word}"`), ...validate(values)];
  if (errors.length > 0) throw new FlagError(errors.join("; "));
  return values;
}

/** What `--help` prints. */
export function nodeUsage(): string {
  const summary = "Joins this machine to a cluster as a Node whose Pods are gVisor sandboxes.";
  return goFlagsUsage("agent-sandbox node", summary, nodeFlags);
}

function validate(values: NodeFlagValues): string[] {
  const errors: string[] = [];
  const address = values["node-ip"];
  if (address !== "" && isIP(address) !== 4) errors.push(`--node-ip "${address}" is not an IPv4 address`);
  if (values.port < 0 || values.port > 65_535) errors.push(`--port ${values.port} is not a port`);
  if (values["max-pods"] < 1) errors.push("--max-pods must be greater than 0");
  if ((values["tls-cert-file"] === "") !== (values["tls-private-key-file"] === ""))
    errors.push("--tls-cert-file and --tls-private-key-file belong together");
  const cidr = values["pod-cidr"];
  if (cidr !== "" && !/^\d+\.\d+\.0\.0\/16$/.test(cidr))
    errors.push(`--pod-cidr "${cidr}" is not a /16 such as 10.210.0.0/16`);
  for (const label of listOf(values["node-labels"]))
    if (!/^[^=]+=[^=]*$/.test(label)) errors.push(`--node-labels: "${label}" is not key=value`);
  for (const taint of listOf(values["register-with-taints"]))
    if (tryParseTaint(taint) === undefined) errors.push(`--register-with-taints: "${taint}" is not key=value:effect`);
  for (const dir of listOf(values["allow-host-path"]))
    if (!dir.startsWith("/")) errors.push(`--allow-host-path: "${dir}" is not absolute`);
  errors.push(...archiveErrors(archiveFlagsOf(values)));
  return [...errors, ...imageLimitsOf(values).errors, ...parseLimitFlags(limitFlagsOf(values)).errors];
}

function archiveErrors(flags: ArchiveFlags): string[] {
  try {
    parseArchiveFlags(flags);
    return [];
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    return [error.message];
  }
}

/** The words of a list that is separated by commas. */
export function listOf(text: string): string[] {
  return text.split(",").filter((word) => word !== "");
}

/** The labels of `--node-labels`. */
export function labelsOf(text: string): Record<string, string> {
  return Object.fromEntries(
    listOf(text).map((label) => {
      const [key = "", value = ""] = label.split("=");
      return [key, value];
    }),
  );
}

/** The taints of `--register-with-taints`. */
export function taintsOf(text: string): Taint[] {
  return listOf(text).flatMap((word) => tryParseTaint(word) ?? []);
}

function tryParseTaint(text: string): Taint | undefined {
  const [, key, value, effect = ""] = /^([^=:]+)(?:=([^:]*))?:(\w+)$/.exec(text) ?? [];
  if (key === undefined || !taintEffects.includes(effect)) return undefined;
  return { key, effect, ...(value !== undefined && value !== "" && { value }) };
}
