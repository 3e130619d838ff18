import { patchTypes } from "../api-call.ts";
import { at, configMap, pod, sandbox, service, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

type Row = readonly [title: string, type: keyof typeof patchTypes, made: unknown, patch: unknown];

function script(path: string, [title, type, made, patch]: Row): Script {
  const create: Step = { do: `POST ${path}`, body: made, show: "nothing" };
  return [title, create, { do: `PATCH ${path}/a`, type: patchTypes[type], body: patch, loose: isWordedByGo(title) }];
}

/** Refusals whose words are those of Go's own patch library. */
const isWordedByGo = (title: string): boolean =>
  /broken JSON|test that fails|missing path|no list|without its key|cannot delete/.test(title);

const labelled = configMap("a", { x: "1", y: "2" }, { labels: { one: "1" } });

const mapRows: Row[] = [
  ["merge adds, changes and removes", "merge", labelled, { data: { x: null, y: "3", z: "4" } }],
  ["merge removes a whole map", "merge", labelled, { metadata: { labels: null } }],
  ["merge with nothing changes nothing", "merge", labelled, {}],
  ["merge cannot rename", "merge", labelled, { metadata: { name: "b" } }],
  ["merge of broken JSON is refused", "merge", labelled, "{"],
  ["merge with a stale version is a Conflict", "merge", labelled, { metadata: { resourceVersion: "1" } }],
  ["json adds", "json", labelled, [{ op: "add", path: "/data/z", value: "3" }]],
  ["json replaces", "json", labelled, [{ op: "replace", path: "/data/x", value: "3" }]],
  ["json removes", "json", labelled, [{ op: "remove", path: "/data/x" }]],
  ["json copies", "json", labelled, [{ op: "copy", from: "/data/x", path: "/data/z" }]],
  ["json moves", "json", labelled, [{ op: "move", from: "/data/x", path: "/data/z" }]],
  [
    "json test that holds",
    "json",
    labelled,
    [
      { op: "test", path: "/data/x", value: "1" },
      { op: "remove", path: "/data/x" },
    ],
  ],
  [
    "json test that fails is refused",
    "json",
    labelled,
    [
      { op: "test", path: "/data/x", value: "9" },
      { op: "remove", path: "/data/x" },
    ],
  ],
  ["json of a missing path is refused", "json", labelled, [{ op: "remove", path: "/data/none" }]],
  [
    "json with an escaped key",
    "json",
    labelled,
    [
      { op: "add", path: "/metadata/annotations", value: {} },
      { op: "add", path: "/metadata/annotations/a.b~1c", value: "1" },
    ],
  ],
  ["json that is no list is refused", "json", labelled, { op: "remove" }],
  ["strategic merges maps", "strategic", labelled, { data: { x: null, z: "3" } }],
  ["strategic replaces a map on demand", "strategic", labelled, { data: { $patch: "replace", only: "1" } }],
];

const listed = pod(
  "a",
  {
    containers: [
      { name: "main", image: "example.com/app:1" },
      { name: "side", image: "example.com/side:1" },
    ],
    tolerations: [{ key: "k", operator: "Exists" }],
    // No controller binds it while it is compared.
    schedulerName: "nobody",
  },
  { finalizers: ["example.com/one"] },
);

const podRows: Row[] = [
  [
    "strategic merges containers by name",
    "strategic",
    listed,
    { spec: { containers: [{ name: "side", image: "example.com/side:2" }] } },
  ],
  ["strategic adds a finalizer to the set", "strategic", listed, { metadata: { finalizers: ["example.com/two"] } }],
  [
    "strategic deletes from the set",
    "strategic",
    listed,
    { metadata: { "$deleteFromPrimitiveList/finalizers": ["example.com/one"] } },
  ],
  ["strategic element without its key is refused", "strategic", listed, { spec: { containers: [{ image: "x" }] } }],
  [
    "strategic cannot delete a container",
    "strategic",
    listed,
    { spec: { containers: [{ name: "side", $patch: "delete" }] } },
  ],
  ["merge replaces a list", "merge", listed, { spec: { tolerations: [{ key: "other", operator: "Exists" }] } }],
];

const serviceRows: Row[] = [
  [
    "strategic merges ports by number",
    "strategic",
    service("a", {
      ports: [
        { name: "x", port: 80 },
        { name: "y", port: 81 },
      ],
    }),
    { spec: { ports: [{ port: 81, targetPort: 9 }] } },
  ],
  [
    "strategic deletes a port",
    "strategic",
    service("a", {
      ports: [
        { name: "x", port: 80 },
        { name: "y", port: 81 },
      ],
    }),
    { spec: { ports: [{ port: 81, $patch: "delete" }] } },
  ],
  [
    "strategic sets the order of ports",
    "strategic",
    service("a", {
      ports: [
        { name: "x", port: 80 },
        { name: "y", port: 81 },
      ],
    }),
    { spec: { "$setElementOrder/ports": [{ port: 81 }, { port: 80 }], ports: [{ port: 81, targetPort: 9 }] } },
  ],
];

const widgetRows: Row[] = [
  ["merge of a custom object", "merge", widget("a", { size: 1, tags: ["a"] }), { spec: { tags: ["b", "c"] } }],
  [
    "json of a custom object",
    "json",
    widget("a", { size: 1, tags: ["a"] }),
    [{ op: "add", path: "/spec/tags/-", value: "b" }],
  ],
  ["strategic of a custom object is refused", "strategic", widget("a", { size: 1 }), { spec: { size: 2 } }],
  ["merge that breaks the schema is refused", "merge", widget("a", { size: 1 }), { spec: { size: -1 } }],
  ["merge prunes unknown fields", "merge", widget("a", { size: 1 }), { spec: { unknown: 1 } }],
  ["merge does not reach the status", "merge", widget("a", { size: 1 }), { status: { phase: "Bad" } }],
];

const scripts: Script[] = [
  ...mapRows.map((row) => script(at.configMaps, row)),
  ...podRows.map((row) => script(at.pods, row)),
  ...serviceRows.map((row) => script(at.services, row)),
  ...widgetRows.map((row) => script(at.widgets, row)),
  ["merge of nothing is NotFound", { do: `PATCH ${at.configMaps}/none`, type: patchTypes.merge, body: {} }],
  [
    "patch of an unknown type is refused",
    { do: `POST ${at.configMaps}`, body: labelled, show: "nothing" },
    { do: `PATCH ${at.configMaps}/a`, type: "application/json", body: {} },
  ],
  [
    "merge suspends a Sandbox",
    { do: `POST ${at.sandboxes}`, body: sandbox("a"), show: "nothing" },
    { do: `PATCH ${at.sandboxes}/a`, type: patchTypes.merge, body: { spec: { operatingMode: "Suspended" } } },
  ],
];

/** JSON patch, merge patch and strategic merge patch. */
export const patches: Group = {
  name: "patches",
  cases: scripted("patches", scripts),
  breakage: (request, answer) =>
    request.method === "PATCH" && answer.body?.data !== undefined
      ? { ...answer, body: { ...answer.body, data: { x: "1" } } }
      : answer,
};
