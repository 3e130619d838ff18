// Serves our API with its stand-ins in a process of its own, for benchmarks. Speaks JSON lines: first its credentials, then
// a kubeconfig path for every line `{"user": ..., "groups": [...]}` it reads, and `{}` for `{"compact": true}` once the store has forgotten
// all events; ends when its input ends.
import { createInterface } from "node:readline";
import { openEmbeddedTarget } from "../conformance/embedded-target.ts";

const target = await openEmbeddedTarget();
const { server, ca, cert, key } = target.admin;
const say = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
say({ server, ca, cert, key, kubeconfig: target.kubeconfig });
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line) as { user: string; groups: string[] } | { compact: true };
  if ("compact" in asked) {
    await target.compact();
    say({});
  } else say({ kubeconfig: await target.kubeconfigFor(asked.user, asked.groups) });
}
await target[Symbol.asyncDispose]();
process.exit(0);
