import type { Credentials } from "@agent-sandbox/kube";
import { WebSocket } from "ws";

/** How a command in a pod ended. */
export interface ExecResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** One command in a container. */
export interface ExecQuestion {
  readonly namespace: string;
  readonly pod: string;
  readonly container?: string;
  readonly command: readonly string[];
  readonly timeoutMs?: number;
}

const stdoutChannel = 1;
const stderrChannel = 2;
const statusChannel = 3;

/** Runs a command by the exec subresource over WebSocket. */
export async function execInPod(credentials: Credentials, question: ExecQuestion): Promise<ExecResult> {
  const { namespace, pod, container, command } = question;
  const query = new URLSearchParams([
    ["stdout", "true"],
    ["stderr", "true"],
    ...(container === undefined ? [] : [["container", container]]),
    ...command.map((word) => ["command", word]),
  ]);
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/exec?${query}`;
  return execOver(credentials, path, question);
}

/** Runs a command at the node's own endpoint, as the API server does. */
export function execAtKubelet(
  credentials: Credentials,
  question: ExecQuestion & { container: string },
): Promise<ExecResult> {
  const { namespace, pod, container, command } = question;
  const query = new URLSearchParams([["output", "1"], ["error", "1"], ...command.map((word) => ["command", word])]);
  return execOver(credentials, `/exec/${namespace}/${pod}/${container}?${query}`, question);
}

async function execOver(credentials: Credentials, path: string, question: ExecQuestion): Promise<ExecResult> {
  const { pod, command, timeoutMs = 60_000 } = question;
  const url = `${credentials.server.replace("https:", "wss:")}${path}`;
  const headers = (await credentials.authorize?.()) ?? {};
  const { ca, cert, key } = credentials;
  const { serverName } = credentials;
  const name = serverName === undefined ? {} : { servername: serverName };
  const socket = new WebSocket(url, ["v5.channel.k8s.io"], { ca, cert, key, headers, ...name });
  const output: Buffer[][] = [[], [], [], []];
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => socket.terminate(), timeoutMs);
    socket.on("message", (message: Buffer) => output[message[0] ?? 0]?.push(message.subarray(1)));
    socket.once("error", reject);
    socket.once("close", () => {
      clearTimeout(timer);
      const text = (channel: number): string => Buffer.concat(output[channel] ?? []).toString("utf8");
      const status = text(statusChannel);
      if (status === "") return reject(new Error(`${command.join(" ")} in ${pod}: no status within ${timeoutMs} ms`));
      try {
        resolve({ exitCode: exitCodeOf(status), stdout: text(stdoutChannel), stderr: text(stderrChannel) });
      } catch (error) {
        reject(error as Error);
      }
    });
  });
}

interface ExecStatus {
  readonly status: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason: string; readonly message: string }[] };
}

function exitCodeOf(text: string): number {
  const { status, message, details } = JSON.parse(text) as ExecStatus;
  if (status === "Success") return 0;
  const code = details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
  if (code === undefined) throw new Error(`the command did not run: ${message ?? text}`);
  return Number(code);
}
