import type { Probe } from "@agent-sandbox/api";

/** What one try of a probe found. */
export interface CheckResult {
  readonly isOk: boolean;
  /** Why not, for the event; bounded, because a sandbox wrote it. */
  readonly message: string;
}

/** How a probe reaches into a sandbox. Each call ends by the signal. */
export interface ProbeTarget {
  readonly address: string;
  /** Named container ports. */
  readonly ports: ReadonlyMap<string, number>;
  /** Runs a command; resolves with its exit code and the head of its output. */
  readonly exec: (
    command: readonly string[],
    signal: AbortSignal,
  ) => Promise<{ readonly exitCode: number; readonly output: string }>;
}

/** The three network ways to check, given so that a test can choose what answers. */
export interface ProbeDialers {
  readonly http: (request: HttpCheck, signal: AbortSignal) => Promise<CheckResult>;
  readonly tcp: (address: string, port: number, signal: AbortSignal) => Promise<CheckResult>;
  readonly grpc: (check: GrpcCheck, signal: AbortSignal) => Promise<CheckResult>;
}

/** One HTTP request of a probe. */
export interface HttpCheck {
  readonly scheme: "http" | "https";
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
}

/** One call of `grpc.health.v1.Health/Check`. */
export interface GrpcCheck {
  readonly address: string;
  readonly port: number;
  readonly service: string;
}

/** Longest probe message that is kept. */
const messageLengthMax = 512;

/** Carries out one try of a probe. */
export async function checkProbe(
  probe: Probe,
  target: ProbeTarget,
  dialers: ProbeDialers,
  signal: AbortSignal,
): Promise<CheckResult> {
  try {
    const result = await dispatch(probe, target, dialers, signal);
    return { isOk: result.isOk, message: result.message.slice(0, messageLengthMax) };
  } catch (error) {
    const message = signal.aborted
      ? "context deadline exceeded"
      : error instanceof Error
        ? error.message
        : String(error);
    return { isOk: false, message: message.slice(0, messageLengthMax) };
  }
}

async function dispatch(
  probe: Probe,
  target: ProbeTarget,
  dialers: ProbeDialers,
  signal: AbortSignal,
): Promise<CheckResult> {
  if (probe.exec !== undefined) {
    const { exitCode, output } = await target.exec(probe.exec.command ?? [], signal);
    return { isOk: exitCode === 0, message: output };
  }
  if (probe.httpGet !== undefined) {
    const { host, port, path = "/", scheme, httpHeaders = [] } = probe.httpGet;
    const check: HttpCheck = {
      scheme: scheme?.toUpperCase() === "HTTPS" ? "https" : "http",
      host: host === undefined || host === "" ? target.address : host,
      port: resolvePort(port, target),
      path: path.startsWith("/") ? path : `/${path}`,
      headers: httpHeaders.map(({ name, value }) => [name, value] as const),
    };
    // Probes speak to the pod alone: a host of the owner's choice would make the node a proxy into its own network.
    if (check.host !== target.address)
      return { isOk: false, message: `host ${check.host} is not the pod's own address` };
    return dialers.http(check, signal);
  }
  if (probe.tcpSocket !== undefined)
    return dialers.tcp(target.address, resolvePort(probe.tcpSocket.port, target), signal);
  if (probe.grpc !== undefined) {
    return dialers.grpc({ address: target.address, port: probe.grpc.port, service: probe.grpc.service ?? "" }, signal);
  }
  return { isOk: true, message: "" };
}

function resolvePort(port: number | string, target: ProbeTarget): number {
  const found = typeof port === "number" ? port : (target.ports.get(port) ?? Number(port));
  if (!Number.isInteger(found) || found < 1 || found > 65_535)
    throw new Error(`couldn't find port: ${JSON.stringify(port)}`);
  return found;
}
