import type { Container, Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { planLimits } from "../limits.ts";
import { podCgroup, podSize } from "./resources.ts";

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;
const machine = { memoryBytes: 8 * gibibyte, diskBytes: 100 * gibibyte, pidsMax: 10_000 };
const { limits } = planLimits(
  { podMemoryBytes: gibibyte, podPidsMax: 500, reservedMemoryBytes: 2 * gibibyte },
  machine,
);

/** Room of the sentry beside what the pod was promised. */
const overhead = 64 * mebibyte;

function podOf(...resources: readonly Container["resources"][]): Pick<Pod, "spec"> {
  const containers = resources.map((one, index) => ({
    name: `c${index}`,
    ...(one !== undefined && { resources: one }),
  }));
  return { spec: { containers } };
}

test.each<[string, Pick<Pod, "spec">, number]>([
  ["no limit: the default", podOf(undefined), gibibyte],
  ["a limit: that, however large the default is", podOf({ limits: { memory: "100Mi" } }), 100 * mebibyte],
  ["two limits: their sum", podOf({ limits: { memory: "1Gi" } }, { limits: { memory: "2Gi" } }), 3 * gibibyte],
  ["one of two: its own and the default", podOf({ limits: { memory: "2Gi" } }, undefined), 3 * gibibyte],
  ["several without: the default once", podOf(undefined, undefined), gibibyte],
  ["a request above the default: the request", podOf({ requests: { memory: "3Gi" } }), 3 * gibibyte],
  ["a request below the default: the default", podOf({ requests: { memory: "10Mi" } }), gibibyte],
])("podCgroup: memory of a pod with %s", (_name, pod, bytes) => {
  expect(podCgroup(pod, { id: "p", limits })).toMatchObject({ memoryBytes: bytes + overhead, pids: 500 });
});

test("podCgroup: an init container without a limit that requests more than all others decides", () => {
  const pod = {
    spec: {
      ...podOf({ limits: { memory: "1Gi" } }).spec,
      initContainers: [{ name: "i", resources: { limits: { memory: "2Gi" } } }],
    },
  };
  expect(podCgroup(pod as Pick<Pod, "spec">, { id: "p", limits }).memoryBytes).toBe(2 * gibibyte + overhead);
});

test.each<[string, Pick<Pod, "spec">, { memoryBytes: number; cpus: number }]>([
  ["no limits: the default and the machine's processors", podOf(undefined), { memoryBytes: gibibyte, cpus: 8 }],
  ["limits: those", podOf({ limits: { memory: "200Mi", cpu: "3500m" } }), { memoryBytes: 200 * mebibyte, cpus: 4 }],
  [
    "less than two processors: two",
    podOf({ limits: { memory: "1Gi", cpu: "100m" } }),
    { memoryBytes: gibibyte, cpus: 2 },
  ],
  [
    "more than there is: all of it",
    podOf({ limits: { memory: "64Gi", cpu: "64" } }),
    { memoryBytes: 6 * gibibyte, cpus: 8 },
  ],
])("podSize: %s", (_name, pod, size) => {
  expect(podSize(pod, { limits, cpus: 8, memoryBytes: machine.memoryBytes })).toEqual(size);
});
