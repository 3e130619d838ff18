import { spawn } from "node:child_process";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Credentials } from "@agent-sandbox/kube";

/** Our API server in a process of its own. */
export interface EmbeddedProcess extends AsyncDisposable {
  readonly pid: number;
  readonly admin: Credentials;
  readonly kubeconfig: string;
  kubeconfigFor(user: string, groups: readonly string[]): Promise<string>;
  /** Forgets every event so far, as the server does by itself after some minutes. */
  compact(): Promise<void>;
}

/** Starts it; flags go to Node, for example `--cpu-prof`, and `env` to its environment besides this process's own. */
export async function openEmbeddedProcess(
  nodeFlags: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<EmbeddedProcess> {
  const script = path.join(import.meta.dirname, "serve-embedded.ts");
  const child = spawn(process.execPath, [...nodeFlags, "--disable-warning=ExperimentalWarning", script], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async (): Promise<{ server: string; ca: string; cert: string; key: string; kubeconfig: string }> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the embedded server ended");
    return JSON.parse(value as string);
  };
  const { kubeconfig, ...admin } = await read();
  return {
    pid: child.pid ?? 0,
    admin,
    kubeconfig,
    async kubeconfigFor(user, groups) {
      child.stdin.write(`${JSON.stringify({ user, groups })}\n`);
      return (await read()).kubeconfig;
    },
    async compact() {
      child.stdin.write(`${JSON.stringify({ compact: true })}\n`);
      await read();
    },
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await gone;
    },
  };
}
