import type { Context, Verb } from "../context.ts";
import { dataDirOf } from "../data-dir.ts";
import { startEngineProcess } from "../start-engine.ts";

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
}

/** Starts the engine, here or detached. */
export const upVerb: Verb<UpFlags> = (context, _args, flags) => up(context, flags);

async function up(context: Context, flags: UpFlags): Promise<void> {
  const dataDir = dataDirOf(flags, context);
  if (flags.detach === true) {
    const { assertSecretTarget } = await import("@agent-sandbox/server/main/secret-out");
    if (flags.kubeconfigOut !== undefined) assertSecretTarget(flags.kubeconfigOut);
    const record = await startEngineProcess(dataDir, foregroundArgs(flags));
    context.stdout.write(
      `engine is running: API ${record.apiUrl}, router ${record.routerUrl}\nkubeconfig: ${record.kubeconfig}\n`,
    );
    return;
  }
  const { up: start } = await import("@agent-sandbox/server/main/up");
  const { parseListenAddress, parseSandboxesAhead } = await import("@agent-sandbox/server/main/engine-config");
  // The supervisor's own way of ending is by these signals; this command's would cut it short.
  process.removeAllListeners("SIGINT");
  process.removeAllListeners("SIGTERM");
  const { engine, record } = await start({
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
    ...(flags.sandboxesAhead !== undefined && { sandboxesAhead: parseSandboxesAhead(flags.sandboxesAhead) }),
  });
  context.stderr.write(`engine is running: API ${record.apiUrl}, router ${record.routerUrl}\n`);
  await new Promise<void>((resolve) => {
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.once(name, () => resolve());
  });
  await engine.stop();
}

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
    ...limitArgs(flags),
  ].flat();
}

function limitArgs(flags: UpFlags): string[][] {
  const { systemReservedMemory, systemReservedDisk, defaultPodMemory, defaultPodDisk, podMaxPids } = flags;
  const given: readonly (readonly [string, string | undefined])[] = [
    ["--system-reserved-memory", systemReservedMemory],
    ["--system-reserved-disk", systemReservedDisk],
    ["--default-pod-memory", defaultPodMemory],
    ["--default-pod-disk", defaultPodDisk],
    ["--pod-max-pids", podMaxPids],
  ];
  return given.flatMap(([flag, value]) => (value === undefined ? [] : [[flag, value]]));
}
