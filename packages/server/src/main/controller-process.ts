import { randomBytes, randomUUID } from "node:crypto";
import os from "node:os";
import { setFlagsFromString } from "node:v8";
import { createClient, httpTransport, systemClock } from "@agent-sandbox/kube";
import { issueCertificate } from "../apiserver/auth/certificate.ts";
import { versionText } from "../controllers/process/build-info.ts";
import { runControllerProcess } from "../controllers/process/controller-process.ts";
import { controllerTransport } from "../controllers/process/controller-transport.ts";
import { type ControllerFlagValues, controllerUsage, parseControllerFlags } from "../controllers/process/flags.ts";
import { FlagError, wantsHelp } from "../controllers/process/go-flags.ts";
import { createLogger } from "../telemetry/logger.ts";
import { createMetricsRegistry } from "../telemetry/metrics.ts";
import { clusterCredentials, ownNamespace } from "./cluster-credentials.ts";
import { readVersion } from "./version.ts";

/** The `controller` role on a cluster. Resolves with the exit code: 0 after a clean end, 1 otherwise, as the reference does. Loaded by path. */
export async function runProcess(args: readonly string[]): Promise<number> {
  if (wantsHelp(args)) {
    process.stdout.write(controllerUsage());
    return 0;
  }
  keepHeapSmall();
  const flags = tryParse(args);
  if (flags === undefined) return 1;
  const build = { version: readVersion() };
  if (flags.version) {
    process.stdout.write(`${versionText(build)}\n`);
    return 0;
  }
  const logger = createLogger({ component: "controllers", level: levelOf(flags["zap-log-level"]) });
  const ending = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => ending.abort(new Error(name)));
  try {
    const credentials = await clusterCredentials(flags.kubeconfig);
    const client = createClient(controllerTransport(flags, () => httpTransport(credentials), systemClock));
    await runControllerProcess({
      client,
      clock: systemClock,
      logger,
      registry: createMetricsRegistry({ processMetrics: true }),
      flags,
      identity: `${os.hostname()}_${randomUUID()}`,
      namespace: await ownNamespace(),
      issue: issueCertificate,
      randomBytes,
      build,
      signal: ending.signal,
    });
    await client.transport.close();
    return 0;
  } catch (error) {
    if (ending.signal.aborted && error === ending.signal.reason) return 0;
    logger.error({ err: error }, "the controller failed");
    return 1;
  }
}

/**
 * A burst leaves a process behind that is hardly larger than before: the young generation stays as large as loading the code
 * has made it, a few MiB, instead of growing with every burst, and the whole heap is collected per quarter of it that requests
 * made old. --optimize-for-size is no way to this: a young generation of one MiB doubles the processor time of a burst.
 */
function keepHeapSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
  setFlagsFromString("--heap-growing-percent=25");
}

/** The flags, or undefined after everything that is wrong with them was said. */
function tryParse(args: readonly string[]): ControllerFlagValues | undefined {
  const say = (line: string): void => void process.stderr.write(`agent-sandbox controller: ${line}\n`);
  try {
    const { values, errors, warnings } = parseControllerFlags(args);
    for (const line of [...errors, ...warnings]) say(line);
    return errors.length === 0 ? values : undefined;
  } catch (error) {
    if (!(error instanceof FlagError)) throw error;
    say(error.message);
    return undefined;
  }
}

/** The reference's `--zap-log-level` takes names and verbosity numbers. */
function levelOf(text: string): string {
  if (/^\d+$/.test(text)) return Number(text) > 0 ? "debug" : "info";
  return text === "panic" ? "fatal" : text || "info";
}
