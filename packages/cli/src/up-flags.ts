import type { UpOptions } from "@agent-sandbox/server/main/up";
import { dataDirDefault } from "./data-dir.ts";

/** Flags of `up`. */
export interface UpFlags {
  readonly dataDir?: string;
  readonly listen: string;
  readonly routerListen: string;
  readonly metricsListen: string;
  readonly insecureListen?: string;
  readonly kubeconfigOut?: string;
  readonly detach?: boolean;
  readonly logLevel: string;
  readonly allowRunc?: boolean;
  readonly allowHostPath?: string[];
  readonly sandboxesAhead?: string;
  readonly imageGcHighThreshold?: string;
  readonly imageGcLowThreshold?: string;
  readonly minimumImageTtlDuration?: string;
  readonly systemReservedMemory?: string;
  readonly systemReservedDisk?: string;
  readonly defaultPodMemory?: string;
  readonly defaultPodDisk?: string;
  readonly podMaxPids?: string;
  readonly archive?: string;
  readonly archiveEndpoint?: string;
  readonly archiveCredentials?: string;
}

/** The engine's options for the flags; a usage error names the flag that makes no sense. */
export async function upOptions(dataDir: string, flags: UpFlags): Promise<UpOptions> {
  const { parseListenAddress, parseSandboxesAhead } = await import("@agent-sandbox/server/main/engine-config");
  return {
    dataDir,
    apiListen: parseListenAddress("--listen", flags.listen),
    routerListen: parseListenAddress("--router-listen", flags.routerListen),
    metricsListen: parseListenAddress("--metrics-listen", flags.metricsListen),
    ...(flags.insecureListen !== undefined && {
      routerInsecureListen: parseListenAddress("--insecure-listen", flags.insecureListen),
    }),
    ...(flags.kubeconfigOut !== undefined && { kubeconfigOut: flags.kubeconfigOut }),
    logLevel: flags.logLevel,
    allowRunc: flags.allowRunc === true,
    hostPathAllowList: flags.allowHostPath ?? [],
    images: flags,
    limits: flags,
    archive: flags,
    ...(flags.sandboxesAhead !== undefined && { sandboxesAhead: parseSandboxesAhead(flags.sandboxesAhead) }),
  };
}

/** Flags of an engine that `run` starts: a second engine on this machine must not want the first one's ports. */
export function implicitFlags(dataDir: string): UpFlags {
  const isDefault = dataDir === dataDirDefault;
  return {
    listen: isDefault ? addressDefaults.api : "127.0.0.1:0",
    routerListen: isDefault ? addressDefaults.router : "127.0.0.1:0",
    metricsListen: isDefault ? addressDefaults.metrics : "127.0.0.1:0",
    logLevel: "info",
  };
}

/** Where an engine listens that was not told otherwise. */
export const addressDefaults = { api: "127.0.0.1:7443", router: "127.0.0.1:7080", metrics: "127.0.0.1:7090" } as const;

/** The flags of the foreground process that a detached start leaves behind. */
export function foregroundArgs(flags: UpFlags): string[] {
  const {
    listen,
    routerListen,
    metricsListen,
    insecureListen,
    kubeconfigOut,
    logLevel,
    allowRunc,
    allowHostPath = [],
    sandboxesAhead,
    imageGcHighThreshold,
    imageGcLowThreshold,
    minimumImageTtlDuration,
  } = flags;
  return [
    ["--listen", listen],
    ["--router-listen", routerListen],
    ["--metrics-listen", metricsListen],
    ...(insecureListen === undefined ? [] : [["--insecure-listen", insecureListen]]),
    ...(kubeconfigOut === undefined ? [] : [["--kubeconfig-out", kubeconfigOut]]),
    ["--log-level", logLevel],
    ...(allowRunc === true ? [["--allow-runc"]] : []),
    ...allowHostPath.map((dir) => ["--allow-host-path", dir]),
    ...(sandboxesAhead === undefined ? [] : [["--sandboxes-ahead", sandboxesAhead]]),
    ...(imageGcHighThreshold === undefined ? [] : [["--image-gc-high-threshold", imageGcHighThreshold]]),
    ...(imageGcLowThreshold === undefined ? [] : [["--image-gc-low-threshold", imageGcLowThreshold]]),
    ...(minimumImageTtlDuration === undefined ? [] : [["--minimum-image-ttl-duration", minimumImageTtlDuration]]),
    ...textArgs(flags),
  ].flat();
}

function textArgs(flags: UpFlags): string[][] {
  const { systemReservedMemory, systemReservedDisk, defaultPodMemory, defaultPodDisk, podMaxPids } = flags;
  const given: readonly (readonly [string, string | undefined])[] = [
    ["--system-reserved-memory", systemReservedMemory],
    ["--system-reserved-disk", systemReservedDisk],
    ["--default-pod-memory", defaultPodMemory],
    ["--default-pod-disk", defaultPodDisk],
    ["--pod-max-pids", podMaxPids],
    ["--archive", flags.archive],
    ["--archive-endpoint", flags.archiveEndpoint],
    ["--archive-credentials", flags.archiveCredentials],
  ];
  return given.flatMap(([flag, value]) => (value === undefined ? [] : [[flag, value]]));
}
