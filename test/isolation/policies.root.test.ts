import { existsSync } from "node:fs";
import { type Namespace, type NetworkPolicy, namespaces, networkPolicies } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine, until } from "../node/real-engine.ts";
import { probeAll, proberContainer } from "./matrix-probe.ts";
import { type Attempt, allows, type MatrixPod, portNames } from "./policy-oracle.ts";
import { type PolicyCase, policyTable } from "./policy-table.ts";

let engine: RealEngine;
let gateway: string;

/** How long silence must last to count as dropped: in the first round, and in the last. */
const quietMinMs = 300;
const quietMaxMs = 5_000;

const matrixPods: MatrixPod[] = [];
const bridgeSwitch = "/proc/sys/net/bridge/bridge-nf-call-iptables";
/** The switch belongs to a network namespace; only the engine's own is turned. */
const hasBridgeSwitch = existsSync(bridgeSwitch);

const ports = [8080, 8081];
const protocols = ["TCP", "UDP"] as const;

beforeAll(async () => {
  engine = await RealEngine.open();
  const container = {
    name: "main",
    image: "host",
    ...proberContainer(ports),
    ports: Object.entries(portNames).map(([name, { port, protocol }]) => ({ name, containerPort: port, protocol })),
  };
  for (const namespace of ["x", "y", "z"]) {
    const object: Namespace = {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: namespace, labels: { team: namespace } },
    };
    await engine.client.create(namespaces, object);
    for (const app of ["a", "b", "c"])
      await engine.startPod(app, {
        metadata: { name: app, namespace, labels: { app } },
        spec: { containers: [container] },
      });
  }
  for (const namespace of ["x", "y", "z"])
    for (const app of ["a", "b", "c"]) {
      const pod = await engine.readyPod(app, namespace);
      matrixPods.push({ namespace, app, address: pod.status?.podIP ?? "" });
    }
  gateway = `${engine.podCidr().split(".").slice(0, 2).join(".")}.0.1`;
  // The interpreters take a moment.
  await until(() => measure(quietMinMs) !== undefined);
}, 180_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

/** Every connection between different pods; one to itself never leaves a sandbox. */
function attemptsOf(from: MatrixPod): Attempt[] {
  return matrixPods
    .filter((to) => to !== from)
    .flatMap((to) => ports.flatMap((port) => protocols.map((protocol) => ({ from, to, port, protocol }))));
}

async function enforce({ policies }: PolicyCase): Promise<void> {
  for (const namespace of ["x", "y", "z"]) await engine.client.deleteCollection(networkPolicies, { namespace });
  for (const [index, { namespace, spec }] of policies.entries()) {
    const object: NetworkPolicy = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: `p${index}`, namespace },
      spec,
    };
    await engine.client.create(networkPolicies, object);
  }
}

interface Cell {
  readonly connection: string;
  readonly reached: boolean;
}

/** Every cell, or undefined when a pod or its positive control did not answer in this round. */
function measure(quietMs: number): Cell[] | undefined {
  const attempts = matrixPods.map(attemptsOf);
  const orders = attempts.map((row, index) => ({
    address: matrixPods[index]?.address ?? "",
    targets: row.map(({ to, port, protocol }) => ({ address: to.address, port, protocol })),
  }));
  const answers = probeAll(engine.place, orders, { gateway, quietMs });
  if (answers.includes(undefined)) return undefined;
  return attempts.flatMap((row, from) =>
    row.map((attempt, index) => ({ connection: nameOf(attempt), reached: answers[from]?.[index] === true })),
  );
}

function nameOf({ from, to, port, protocol }: Attempt): string {
  return `${from.namespace}/${from.app} -> ${to.namespace}/${to.app} ${protocol} ${port}`;
}

async function expectMatrix(policyCase: PolicyCase): Promise<void> {
  await enforce(policyCase);
  const expected = matrixPods
    .flatMap(attemptsOf)
    .map((attempt) => ({ connection: nameOf(attempt), reached: allows(policyCase, attempt) }));
  // The rules follow the objects within moments, and a busy machine may be slow to answer: each round waits longer for what stays silent.
  let wrong: readonly Cell[] | undefined;
  for (let quietMs = quietMinMs; quietMs <= quietMaxMs; quietMs *= 2) {
    wrong = measure(quietMs)?.filter(({ reached }, index) => reached !== expected[index]?.reached);
    if (wrong?.length === 0) break;
  }
  expect(wrong).toEqual([]);
  expect(expected).toHaveLength(9 * 8 * 2 * 2);
}

test.each(policyTable)("policy matrix: $title", async (policyCase) => {
  await expectMatrix(policyCase);
});

test.each(hasBridgeSwitch ? ["0", "1"] : [])(
  "policy matrix: holds with bridge-nf-call-iptables at %s",
  async (value) => {
    engine.place.must("sh", "-c", `echo ${value} > ${bridgeSwitch} && grep -q ${value} ${bridgeSwitch}`);
    await expectMatrix(
      policyTable.find(({ title }) => title === "from a namespace") ?? { title: "none", policies: [] },
    );
  },
);

test("policy matrix: the table has enough cases and each decides something", () => {
  expect(policyTable.length).toBeGreaterThanOrEqual(20);
  const verdicts = policyTable.map((policyCase) =>
    matrixPods
      .flatMap(attemptsOf)
      .map((attempt) => (allows(policyCase, attempt) ? "y" : "n"))
      .join(""),
  );
  expect(new Set(verdicts).size).toBeGreaterThanOrEqual(17);
});
