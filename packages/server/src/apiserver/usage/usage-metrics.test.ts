import { expect, test } from "vitest";
import { StorageReader } from "../auth/storage-reader.ts";
import { podBody, TestServer } from "../testing/test-server.ts";
import { UsageMetrics } from "./usage-metrics.ts";

/** A server with one node that says what `cpuNanos` is at each question. */
function serverWithNode(node: { cpuNanos: number; uid: string; isDown?: boolean; machineNanos?: number }): TestServer {
  const reader = new StorageReader();
  const dialer = {
    async request() {
      if (node.isDown === true) throw new Error("down");
      const time = new Date(server.clock.nowMs()).toISOString();
      const cpu = { time, usageCoreNanoSeconds: node.cpuNanos };
      const containers = [{ name: "main", cpu, memory: { time, workingSetBytes: 3 * 1024 * 1024 } }];
      const machine = { time, usageCoreNanoSeconds: node.machineNanos };
      const ofNode =
        node.machineNanos === undefined ? {} : { node: { cpu: machine, memory: { workingSetBytes: 2 ** 30 } } };
      const summary = { ...ofNode, pods: [{ podRef: { uid: node.uid }, containers }] };
      return {
        status: 200,
        headers: {},
        body: (async function* () {
          yield Buffer.from(JSON.stringify(summary));
        })(),
      };
    },
    connect: () => Promise.reject(new Error("not asked")),
  };
  const clock = {
    nowMs: () => server.clock.nowMs(),
    setTimer: (ms: number, fire: () => void) => server.clock.setTimer(ms, fire),
  };
  const server: TestServer = new TestServer({
    virtualResources: new UsageMetrics({ reader, dialer, clock }).resources(),
  });
  reader.attach(server.api.parts);
  return server;
}

const podsPath = "/api/v1/namespaces/default/pods";
const metricsPath = "/apis/metrics.k8s.io/v1beta1";

async function withPod(node: { cpuNanos: number; uid: string }, server: TestServer): Promise<void> {
  await server.call("POST", "/api/v1/nodes", { body: { apiVersion: "v1", kind: "Node", metadata: { name: "n" } } });
  const pod = await server.call("POST", podsPath, { body: podBody("a", { nodeName: "n" }, { labels: { app: "x" } }) });
  node.uid = (pod.body["metadata"] as { uid: string }).uid;
}

/** Asks once without a reading before it: a second passes between the two readings. */
async function firstAsk(server: TestServer, node: { cpuNanos: number }, path: string) {
  const answer = server.call("GET", path);
  await new Promise((resolve) => setImmediate(resolve));
  node.cpuNanos += 250_000_000;
  server.clock.advance(1_000);
  return answer;
}

test("usage metrics: a pod's use is the rate between two readings", async () => {
  const node = { cpuNanos: 5_000_000_000, uid: "" };
  await using server = serverWithNode(node);
  await withPod(node, server);
  const first = await firstAsk(server, node, `${metricsPath}/namespaces/default/pods/a`);
  expect(first.body).toMatchObject({
    kind: "PodMetrics",
    metadata: { name: "a", namespace: "default", labels: { app: "x" } },
    window: "1.000s",
    containers: [{ name: "main", usage: { cpu: "250000000n", memory: "3072Ki" } }],
  });
  node.cpuNanos += 20_000_000_000;
  server.clock.advance(10_000);
  const second = await server.call("GET", `${metricsPath}/nodes/n`);
  expect(second.body).toMatchObject({ kind: "NodeMetrics", window: "10.000s", usage: { cpu: "2000000000n" } });
});

test("usage metrics: a node that says how busy it is as a whole is believed", async () => {
  const node = { cpuNanos: 0, uid: "", machineNanos: 0 };
  await using server = serverWithNode(node);
  await withPod(node, server);
  await firstAsk(server, node, `${metricsPath}/nodes/n`);
  node.machineNanos += 30_000_000_000;
  server.clock.advance(10_000);
  const answer = await server.call("GET", `${metricsPath}/nodes/n`);
  expect(answer.body).toMatchObject({ usage: { cpu: "3000000000n", memory: "1048576Ki" } });
});

test("usage metrics: a selector picks by the labels of the pods", async () => {
  const node = { cpuNanos: 0, uid: "" };
  await using server = serverWithNode(node);
  await withPod(node, server);
  const match = await firstAsk(server, node, `${metricsPath}/namespaces/default/pods?labelSelector=app%3Dx`);
  expect(match.body["items"]).toHaveLength(1);
  server.clock.advance(2_000);
  const none = await server.call("GET", `${metricsPath}/namespaces/default/pods?labelSelector=app%3Dy`);
  expect(none.body["items"]).toEqual([]);
});

test("usage metrics: a node that is down has no metrics and fails nobody", async () => {
  const node = { cpuNanos: 0, uid: "", isDown: true };
  await using server = serverWithNode(node);
  await withPod(node, server);
  expect((await server.call("GET", `${metricsPath}/nodes`)).body["items"]).toEqual([]);
  expect((await server.call("GET", `${metricsPath}/nodes/n`)).status).toBe(404);
});
