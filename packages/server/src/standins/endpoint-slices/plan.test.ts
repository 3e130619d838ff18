import type { EndpointSlice, Pod, Service } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { type Action, planEndpointSlices } from "./plan.ts";

const service: Service = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "a", name: "web", uid: "svc" },
  spec: { selector: { app: "web" }, ports: [{ name: "http", port: 80, targetPort: "web" }] },
};

function pod(name: string, part: { status?: object; metadata?: object; spec?: object } = {}): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "a", name, uid: name, ...part.metadata },
    spec: { nodeName: "n", containers: [{ name: "c", ports: [{ name: "web", containerPort: 8080 }] }], ...part.spec },
    status: { phase: "Running", podIP: "10.0.0.1", conditions: [{ type: "Ready", status: "True" }], ...part.status },
  };
}

function slicesOf(actions: readonly Action[]): EndpointSlice[] {
  return actions.flatMap((action) => (action.do === "delete" ? [] : [action.slice]));
}

const plan = (pods: Pod[], part: Partial<Service["spec"]> = {}, slices: EndpointSlice[] = []) =>
  planEndpointSlices({ service: { ...service, spec: { ...service.spec, ...part } } as Service, pods, slices });
const conditionsOf = (one: Pod, part: Partial<Service["spec"]> = {}) =>
  slicesOf(plan([one], part))[0]?.endpoints?.[0]?.conditions;

test.each([
  ["a ready pod", conditionsOf(pod("p")), { ready: true, serving: true, terminating: false }],
  [
    "a pod that is not ready",
    conditionsOf(pod("p", { status: { conditions: [] } })),
    { ready: false, serving: false, terminating: false },
  ],
  [
    "a pod on its way out",
    conditionsOf(pod("p", { metadata: { deletionTimestamp: "x" } })),
    { ready: false, serving: true, terminating: true },
  ],
  [
    "published though not ready",
    conditionsOf(pod("p", { status: { conditions: [] } }), { publishNotReadyAddresses: true }),
    { ready: true, serving: false, terminating: false },
  ],
  ["a pod without an address", conditionsOf(pod("p", { status: { podIP: "" } })), undefined],
  ["a finished pod", conditionsOf(pod("p", { status: { phase: "Succeeded" } })), undefined],
])("planEndpointSlices: conditions: %s", (_title, actual, expected) => {
  expect(actual).toEqual(expected);
});

test("planEndpointSlices: named ports are resolved per pod, and pods that differ get slices of their own", () => {
  const other = pod("q", { spec: { containers: [{ name: "c", ports: [{ name: "web", containerPort: 9090 }] }] } });
  expect(slicesOf(plan([pod("p"), other])).map(({ ports }) => ports?.[0]?.port)).toEqual([8080, 9090]);
});

test("planEndpointSlices: a Service nobody answers for has an empty slice; without a selector it has none", () => {
  expect(slicesOf(plan([]))).toMatchObject([{ endpoints: [], ports: [] }]);
  const { selector: _selector, ...rest } = service.spec ?? {};
  expect(planEndpointSlices({ service: { ...service, spec: rest }, pods: [pod("p")], slices: [] })).toEqual([]);
});

test("planEndpointSlices: a second pass changes nothing, and more than a hundred pods need two slices", () => {
  const many = Array.from({ length: 150 }, (_, index) => pod(`p${index}`));
  const first = slicesOf(plan(many));
  expect(first.map(({ endpoints }) => endpoints?.length)).toEqual([100, 50]);
  expect(plan(many, {}, first)).toEqual([]);
  expect(plan(many.slice(0, 80), {}, first).map((action) => action.do)).toEqual(["update", "delete"]);
});

test("planEndpointSlices: slices of other managers are left alone", () => {
  const foreign = {
    ...slicesOf(plan([pod("p")]))[0],
    metadata: { namespace: "a", name: "mine", labels: {} },
  } as EndpointSlice;
  expect(plan([pod("p")], {}, [foreign]).map((action) => action.do)).toEqual(["create"]);
});
