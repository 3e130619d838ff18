import { patchTypes } from "../api-call.ts";
import { at, pod, sandbox, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const quiet = (path: string, body: unknown): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const widgets = at.widgets;
const on = { status: { phase: "On", size: 3, selector: "app=w" } };
/** A node that takes no Pods by itself. */
const node: Step = {
  do: "POST /api/v1/nodes",
  body: { apiVersion: "v1", kind: "Node", metadata: { name: "$U" }, spec: { unschedulable: true } },
  show: "nothing",
};
const statusPatch: Step = { do: `PATCH ${widgets}/a/status`, type: patchTypes.merge, body: on };

const scripts: Script[] = [
  ["status patch changes the status", quiet(widgets, widget("a", { size: 1 })), statusPatch],
  [
    "status patch does not change the spec",
    quiet(widgets, widget("a", { size: 1 })),
    { ...statusPatch, body: { ...on, spec: { size: 9 } } },
  ],
  [
    "status patch keeps the generation",
    quiet(widgets, widget("a", { size: 1 })),
    { ...statusPatch, show: ({ metadata }) => metadata.generation },
  ],
  [
    "status patch changes no labels",
    quiet(widgets, widget("a")),
    { ...statusPatch, body: { metadata: { labels: { a: "b" } }, ...on } },
  ],
  [
    "status put needs a version for a custom kind",
    quiet(widgets, widget("a", { size: 1 })),
    { do: `PUT ${widgets}/a/status`, body: { ...widget("a", { size: 5 }), ...on } },
  ],
  ["status get gives the whole object", quiet(widgets, widget("a", { size: 1 })), { do: `GET ${widgets}/a/status` }],
  [
    "status json patch",
    quiet(widgets, widget("a")),
    {
      do: `PATCH ${widgets}/a/status`,
      type: patchTypes.json,
      body: [{ op: "add", path: "/status", value: { phase: "On" } }],
    },
  ],
  [
    "status of the wrong type is refused",
    quiet(widgets, widget("a")),
    { ...statusPatch, body: { status: { phase: 5 } } },
  ],
  [
    "status prunes unknown fields",
    quiet(widgets, widget("a")),
    { ...statusPatch, body: { status: { unknown: 5, phase: "x" } }, show: ({ status }) => status },
  ],
  ["status of nothing is NotFound", { ...statusPatch, do: `PATCH ${widgets}/none/status` }],
  ["status of a kind without it is not found", { do: `PATCH ${at.rules}/x/status`, type: patchTypes.merge, body: {} }],
  [
    "an update leaves the status",
    quiet(widgets, widget("a", { size: 1 })),
    { ...statusPatch, show: "nothing" },
    { do: `PATCH ${widgets}/a`, type: patchTypes.merge, body: { spec: { size: 2 }, status: null } },
  ],
  [
    "status of a Pod",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    {
      do: `PATCH ${at.pods}/a/status`,
      type: patchTypes.strategic,
      body: { status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }] } },
      show: ({ status }) => status,
    },
  ],
  [
    "status conditions of a Pod merge by type",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    {
      do: `PATCH ${at.pods}/a/status`,
      type: patchTypes.strategic,
      body: { status: { conditions: [{ type: "Ready", status: "True" }] } },
      show: "nothing",
    },
    {
      do: `PATCH ${at.pods}/a/status`,
      type: patchTypes.strategic,
      body: { status: { conditions: [{ type: "Other", status: "False" }] } },
      show: ({ status }) => status.conditions.map((each: { type: string }) => each.type).sort(),
    },
  ],
  [
    "status of a Sandbox",
    quiet(at.sandboxes, sandbox("a")),
    {
      do: `PATCH ${at.sandboxes}/a/status`,
      type: patchTypes.merge,
      body: {
        status: {
          serviceFQDN: "a.b",
          conditions: [
            { type: "Ready", status: "True", reason: "Fine", message: "", lastTransitionTime: "2020-01-01T00:00:00Z" },
          ],
        },
      },
      show: ({ status }) => status,
    },
  ],
  [
    "status condition without a reason is refused",
    quiet(at.sandboxes, sandbox("a")),
    {
      do: `PATCH ${at.sandboxes}/a/status`,
      type: patchTypes.merge,
      body: {
        status: {
          conditions: [{ type: "Ready", status: "True", message: "", lastTransitionTime: "2020-01-01T00:00:00Z" }],
        },
      },
    },
  ],
  [
    "scale get",
    quiet(widgets, widget("a", { size: 2 })),
    { ...statusPatch, show: "nothing" },
    { do: `GET ${widgets}/a/scale` },
  ],
  [
    "scale put",
    quiet(widgets, widget("a", { size: 2 })),
    {
      do: `PUT ${widgets}/a/scale`,
      body: { apiVersion: "autoscaling/v1", kind: "Scale", metadata: { name: "a" }, spec: { replicas: 5 } },
    },
    { do: `GET ${widgets}/a`, show: ({ spec }) => spec.size },
  ],
  [
    "scale patch",
    quiet(widgets, widget("a", { size: 2 })),
    { do: `PATCH ${widgets}/a/scale`, type: patchTypes.merge, body: { spec: { replicas: 4 } } },
  ],
  [
    "scale below zero is refused",
    quiet(widgets, widget("a", { size: 2 })),
    { do: `PATCH ${widgets}/a/scale`, type: patchTypes.merge, body: { spec: { replicas: -1 } } },
  ],
  [
    "scale beyond the schema is refused",
    quiet(widgets, widget("a", { size: 2 })),
    { do: `PATCH ${widgets}/a/scale`, type: patchTypes.merge, body: { spec: { replicas: 1000 } } },
  ],
  ["scale of nothing is NotFound", { do: `GET ${widgets}/none/scale` }],
  [
    "binding sets the node",
    node,
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    {
      do: `POST ${at.pods}/a/binding`,
      body: { apiVersion: "v1", kind: "Binding", metadata: { name: "a" }, target: { kind: "Node", name: "$U" } },
    },
    { do: `GET ${at.pods}/a`, show: ({ spec, status }) => [spec.nodeName !== "", status.conditions[0].type] },
  ],
  [
    "binding twice is a Conflict",
    node,
    quiet(at.pods, pod("a", { nodeName: "$U" })),
    {
      do: `POST ${at.pods}/a/binding`,
      body: { apiVersion: "v1", kind: "Binding", metadata: { name: "a" }, target: { kind: "Node", name: "$U" } },
    },
  ],
  [
    "eviction deletes the Pod",
    quiet(at.pods, pod("a")),
    { do: `POST ${at.pods}/a/eviction`, body: { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "a" } } },
  ],
  [
    "log of a Pod without a node is refused",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    { do: `GET ${at.pods}/a/log` },
  ],
  [
    "log of a missing container is refused",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    { do: `GET ${at.pods}/a/log?container=none` },
  ],
  [
    "exec without an upgrade is refused",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    { do: `POST ${at.pods}/a/exec?command=ls&stdout=1` },
  ],
];

/** status, scale, binding, eviction, log. */
export const subresources: Group = {
  name: "subresources",
  cases: scripted("subresources", scripts),
  breakage: (request, answer) =>
    request.path.endsWith("/status") && answer.body?.spec !== undefined
      ? { ...answer, body: { ...answer.body, spec: { size: 9 } } }
      : answer,
};
