// Two agents in two sandboxes: the writer reaches the reviewer by a name that outlives sleep.
import { readFile } from "node:fs/promises";
import path from "node:path";
import { type CreateOptions, Sandbox } from "@agent-sandbox/sdk";

await using reviewer = await agent("reviewer", {
  command: ["python3", "-c", await source("reviewer.py")],
  // The request that wakes it is held until the port listens.
  podTemplate: {
    spec: { containers: [{ name: "reviewer", readinessProbe: { tcpSocket: { port: 8000 }, periodSeconds: 1 } }] },
  },
});
await using writer = await agent("writer", {});
await writer.files.write("/workspace/writer.py", await source("writer.py"));

await write("Sandboxes give every agent a place of its own to work in");
await reviewer.suspend();
console.log(`reviewer: ${(await reviewer.info()).state}`);
await write("The reviewer woke up for this sentence.");

const back = await reviewer.run(["python3", "-c", "import socket; socket.create_connection(('writer', 49900), 2)"]);
console.log(`reviewer to writer: ${back.exitCode === 0 ? "open" : "closed"}`);

/** A sandbox of that name; its Pod carries the label that policy.yaml speaks of. */
function agent(name: string, options: CreateOptions): Promise<Sandbox> {
  const podTemplate = { ...options.podTemplate, metadata: { labels: { "agent-pair": name } } };
  return Sandbox.create({ ...options, name, podTemplate });
}

/** Lets the writer bring one sentence past the reviewer. */
async function write(sentence: string): Promise<void> {
  const { stdout } = await writer.run(["python3", "/workspace/writer.py", sentence], {
    check: true,
    commandTimeoutMs: 60_000,
  });
  process.stdout.write(stdout);
}

function source(file: string): Promise<string> {
  return readFile(path.join(import.meta.dirname, file), "utf8");
}
