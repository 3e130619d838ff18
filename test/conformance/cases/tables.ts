import type { Json } from "../api-call.ts";
import { patchTypes } from "../api-call.ts";
import { at, configMap, pod, sandbox, service, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

const ageless = (cell: Json): Json =>
  typeof cell === "string" && /^(\d+[smh])+$|^<invalid>$/.test(cell) ? "<age>" : cell;

/** Columns without their descriptions, which no client shows, and cells without ages. */
function shown({ kind, columnDefinitions, rows }: Json): Json {
  return {
    kind,
    columns: columnDefinitions.map(({ name, type, format, priority }: Json) => ({ name, type, format, priority })),
    rows: rows.map(({ cells }: Json) => cells.map(ageless)),
  };
}

const quiet = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const table = (path: string): Step => ({ do: `GET ${path}`, accept, show: shown });
const one = (path: string, body: Json): Step[] => [quiet(path, body), table(`${path}?fieldSelector=metadata.name%3Da`)];
const condition = {
  type: "Ready",
  status: "True",
  reason: "Fine",
  message: "",
  lastTransitionTime: "2020-01-01T00:00:00Z",
};

const scripts: Script[] = [
  ["ConfigMap", ...one(at.configMaps, configMap("a", { x: "1", y: "2" }))],
  ["Secret", ...one(at.secrets, { apiVersion: "v1", kind: "Secret", metadata: { name: "a" }, stringData: { x: "1" } })],
  ["Pod", ...one(at.pods, pod("a", { schedulerName: "nobody" }))],
  ["ServiceAccount", ...one(at.serviceAccounts, { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "a" } })],
  [
    "PersistentVolumeClaim",
    ...one(at.claims, {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name: "a" },
      spec: { storageClassName: "none", accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
    }),
  ],
  [
    "NetworkPolicy",
    ...one(at.policies, {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "a" },
      spec: { podSelector: { matchLabels: { a: "b" } } },
    }),
  ],
  [
    "Lease",
    ...one(at.leases, {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: "a" },
      spec: { holderIdentity: "me" },
    }),
  ],
  [
    "Role",
    ...one(at.roles, { apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata: { name: "a" }, rules: [] }),
  ],
  ["ResourceQuota", ...one(at.quotas, { apiVersion: "v1", kind: "ResourceQuota", metadata: { name: "a" }, spec: {} })],
  [
    "LimitRange",
    ...one(at.limits, { apiVersion: "v1", kind: "LimitRange", metadata: { name: "a" }, spec: { limits: [] } }),
  ],
  [
    "RoleBinding",
    ...one(at.roleBindings, {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { name: "a" },
      subjects: [{ kind: "User", name: "u", apiGroup: "rbac.authorization.k8s.io" }],
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "a" },
    }),
  ],
  ["headless Service", ...one(at.services, service("a", { clusterIP: "None" }))],
  ["Namespace", { do: "GET /api/v1/namespaces/$NS", accept, show: shown }],
  [
    "Node",
    { do: "POST /api/v1/nodes", body: { apiVersion: "v1", kind: "Node", metadata: { name: "$U" } }, show: "nothing" },
    table("/api/v1/nodes?fieldSelector=metadata.name%3D$U"),
    { do: "DELETE /api/v1/nodes/$U", show: "nothing" },
  ],
  [
    "CustomResourceDefinition",
    table(
      "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3Dwidgets.conformance.test",
    ),
  ],
  ["custom kind with columns", ...one(at.widgets, widget("a", { size: 3, color: "red" }))],
  [
    "custom kind without columns",
    ...one(at.rules, { apiVersion: "conformance.test/v1", kind: "Rule", metadata: { name: "a" } }),
  ],
  [
    "Sandbox",
    quiet(at.sandboxes, sandbox("a")),
    {
      do: `PATCH ${at.sandboxes}/a/status`,
      type: patchTypes.merge,
      body: { status: { conditions: [condition] } },
      show: "nothing",
    },
    table(at.sandboxes),
  ],
  [
    "a running Pod",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    { do: `PATCH ${at.pods}/a/status`, type: patchTypes.strategic, body: { status: running() }, show: "nothing" },
    table(`${at.pods}/a`),
  ],
  [
    "a crashing Pod",
    quiet(at.pods, pod("a", { schedulerName: "nobody" })),
    { do: `PATCH ${at.pods}/a/status`, type: patchTypes.strategic, body: { status: crashing() }, show: "nothing" },
    table(`${at.pods}/a`),
  ],
  ["an empty list", table(at.widgets)],
  [
    "without objects",
    quiet(at.widgets, widget("a")),
    { do: `GET ${at.widgets}?includeObject=None`, accept, show: ({ rows }) => rows[0].object },
  ],
  [
    "with whole objects",
    quiet(at.widgets, widget("a")),
    { do: `GET ${at.widgets}?includeObject=Object`, accept, show: ({ rows }) => rows[0].object.kind },
  ],
  [
    "with metadata by default",
    quiet(at.widgets, widget("a")),
    { do: `GET ${at.widgets}`, accept, show: ({ rows }) => [rows[0].object.kind, rows[0].object.apiVersion] },
  ],
  [
    "an unknown includeObject is refused",
    quiet(at.widgets, widget("a")),
    { do: `GET ${at.widgets}?includeObject=Some`, accept },
  ],
  [
    "metadata only, one object",
    quiet(at.widgets, widget("a")),
    { do: `GET ${at.widgets}/a`, accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io" },
  ],
  ["metadata only, a list", quiet(at.widgets, widget("a")), { do: `GET ${at.widgets}`, accept: partial }],
];

function running(): Json {
  const startedAt = "2020-01-01T00:00:00Z";
  const main = {
    name: "main",
    ready: true,
    restartCount: 0,
    image: "x",
    imageID: "x",
    state: { running: { startedAt } },
  };
  return {
    phase: "Running",
    podIP: "10.0.0.9",
    podIPs: [{ ip: "10.0.0.9" }],
    containerStatuses: [main],
    conditions: [{ type: "Ready", status: "True" }],
  };
}

function crashing(): Json {
  const main = {
    name: "main",
    ready: false,
    restartCount: 3,
    image: "x",
    imageID: "x",
    state: { waiting: { reason: "CrashLoopBackOff" } },
  };
  return { phase: "Running", containerStatuses: [main] };
}

/** What kubectl prints. */
export const tables: Group = {
  name: "tables",
  cases: scripted("tables", scripts),
  breakage: (_request, answer) =>
    answer.body?.columnDefinitions === undefined
      ? answer
      : { ...answer, body: { ...answer.body, columnDefinitions: answer.body.columnDefinitions.slice(1) } },
};
