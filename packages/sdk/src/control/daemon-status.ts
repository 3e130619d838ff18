import { codeOfStatus, SandboxError } from "../errors/sandbox-error.ts";
import { type DataPlane, daemonPort, readText } from "../plane/data-plane.ts";

/** A TCP port that something in the sandbox listens on. */
export interface OpenPort {
  readonly port: number;
  /** Where it listens: `0.0.0.0` and `::` are all addresses, `127.0.0.1` and `::1` the sandbox's own. */
  readonly addresses: readonly string[];
}

/** Figures of the daemon in the sandbox, by name. */
export type SandboxMetrics = Readonly<Record<string, number>>;

/** What listens in the sandbox, in ascending order. */
export async function readPorts(plane: DataPlane, signal: AbortSignal | undefined): Promise<OpenPort[]> {
  const text = await readStatus(plane, "ports", signal);
  try {
    return (JSON.parse(text) as { readonly ports: OpenPort[] }).ports;
  } catch (cause) {
    throw new SandboxError("protocol-error", "ports: the answer is not JSON", { cause });
  }
}

/** The daemon's figures. */
export async function readMetrics(plane: DataPlane, signal: AbortSignal | undefined): Promise<SandboxMetrics> {
  const text = await readStatus(plane, "metrics", signal);
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return Object.fromEntries(lines.map((line) => splitLast(line)));
}

async function readStatus(plane: DataPlane, page: string, signal: AbortSignal | undefined): Promise<string> {
  const { status, headers, body } = await plane.request({
    method: "GET",
    port: daemonPort,
    path: `/v1/${page}`,
    signal,
  });
  const text = await readText(body);
  if (status === 200) return text;
  // No daemon of ours, or one that is older than this page.
  const code = status === 404 || status === 501 ? "unsupported" : codeOfStatus(status);
  const message = `${page}: the sandbox answered ${status}: ${text.trim().slice(0, 500)}`;
  throw new SandboxError(code, message, { requestId: headers["x-request-id"] });
}

function splitLast(line: string): [string, number] {
  const space = line.lastIndexOf(" ");
  return [line.slice(0, space), Number(line.slice(space + 1))];
}
