// The instant fake kubelet in a process of its own, so that it neither slows the client that measures nor is slowed by it.
import { type ChildProcess, fork } from "node:child_process";
import { type Credentials, createClient, httpTransport } from "@agent-sandbox/kube";
import { fakeKubelet } from "../../test/cluster/fake-kubelet.ts";

const variable = "BENCH_KUBELET_CREDENTIALS";

/** Starts it; ends with this process. */
export function openKubeletProcess(credentials: Credentials): Disposable & { readonly pid: number } {
  const { server, ca, cert, key } = credentials;
  const child: ChildProcess = fork(import.meta.filename, {
    env: { ...process.env, [variable]: JSON.stringify({ server, ca, cert, key }) },
  });
  return { pid: child.pid ?? 0, [Symbol.dispose]: () => void child.kill("SIGKILL") };
}

async function serve(text: string): Promise<void> {
  process.once("disconnect", () => process.exit(0));
  const transport = httpTransport(JSON.parse(text) as Credentials);
  await fakeKubelet(createClient(transport), "fake-node").run(new AbortController().signal);
}

const text = process.env[variable];
if (text !== undefined) await serve(text);
