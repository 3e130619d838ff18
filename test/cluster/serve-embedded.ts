// Serves our API with its stand-ins in a process of its own, for benchmarks. Speaks JSON lines: first its credentials, then
// a kubeconfig path for every line `{"user": ..., "groups": [...]}` it reads; ends when its input ends.
import { createInterface } from "node:readline";
import { openEmbeddedTarget } from "../conformance/embedded-target.ts";

const target = await openEmbeddedTarget();
const { server, ca, cert, key } = target.admin;
const say = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
say({ server, ca, cert, key, kubeconfig: target.kubeconfig });
for await (const line of createInterface({ input: process.stdin })) {
  const { user, groups } = JSON.parse(line) as { user: string; groups: string[] };
  say({ kubeconfig: await target.kubeconfigFor(user, groups) });
}
await target[Symbol.asyncDispose]();
process.exit(0);
