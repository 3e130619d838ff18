import type { Json } from "../api-call.ts";
import { at, configMap, pod, service, widget } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const container = (fields: Json): Json => pod("a", { containers: [{ name: "main", image: "x:1", ...fields }] });
const volume = (fields: Json): Json => pod("a", { volumes: [{ name: "v", ...fields }] });
const secret = (fields: Json): Json => ({ apiVersion: "v1", kind: "Secret", metadata: { name: "a" }, ...fields });

const podRows: readonly (readonly [title: string, body: Json])[] = [
  ["without containers", pod("a", { containers: [] })],
  ["container without a name", pod("a", { containers: [{ image: "x" }] })],
  ["container without an image", pod("a", { containers: [{ name: "main" }] })],
  [
    "two containers of one name",
    pod("a", {
      containers: [
        { name: "m", image: "x" },
        { name: "m", image: "y" },
      ],
    }),
  ],
  ["container with a bad name", pod("a", { containers: [{ name: "Bad_Name", image: "x" }] })],
  ["unknown pull policy", container({ imagePullPolicy: "Sometimes" })],
  ["unknown restart policy", pod("a", { restartPolicy: "Maybe" })],
  ["port out of range", container({ ports: [{ containerPort: 70000 }] })],
  ["port with an unknown protocol", container({ ports: [{ containerPort: 80, protocol: "ICMP" }] })],
  ["environment without a name", container({ env: [{ value: "x" }] })],
  [
    "environment with value and source",
    container({ env: [{ name: "A", value: "x", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }] }),
  ],
  [
    "environment from an unknown field",
    container({ env: [{ name: "A", valueFrom: { fieldRef: { fieldPath: "spec.unknown" } } }] }),
  ],
  ["mount without a volume", container({ volumeMounts: [{ name: "none", mountPath: "/x" }] })],
  [
    "mount without a path",
    pod("a", {
      containers: [{ name: "main", image: "x", volumeMounts: [{ name: "v" }] }],
      volumes: [{ name: "v", emptyDir: {} }],
    }),
  ],
  [
    "two mounts on one path",
    pod("a", {
      containers: [
        {
          name: "main",
          image: "x",
          volumeMounts: [
            { name: "v", mountPath: "/a" },
            { name: "v", mountPath: "/a" },
          ],
        },
      ],
      volumes: [{ name: "v", emptyDir: {} }],
    }),
  ],
  ["volume with two sources", volume({ emptyDir: {}, hostPath: { path: "/x" } })],
  [
    "two volumes of one name",
    pod("a", {
      volumes: [
        { name: "v", emptyDir: {} },
        { name: "v", emptyDir: {} },
      ],
    }),
  ],
  ["volume of a claim without a name", volume({ persistentVolumeClaim: { claimName: "" } })],
  ["request above the limit", container({ resources: { requests: { cpu: "2" }, limits: { cpu: "1" } } })],
  ["quantity that is none", container({ resources: { requests: { cpu: "lots" } } })],
  ["negative quantity", container({ resources: { requests: { cpu: "-1" } } })],
  ["unknown resource", container({ resources: { requests: { nonsense: "1" } } })],
  ["probe without a handler", container({ livenessProbe: {} })],
  ["probe with two handlers", container({ livenessProbe: { exec: { command: ["x"] }, tcpSocket: { port: 1 } } })],
  ["probe with a negative delay", container({ livenessProbe: { exec: { command: ["x"] }, initialDelaySeconds: -1 } })],
  [
    "liveness probe with a success threshold",
    container({ livenessProbe: { exec: { command: ["x"] }, successThreshold: 3 } }),
  ],
  ["bad host name", pod("a", { hostname: "Not_Valid" })],
  ["unknown DNS policy", pod("a", { dnsPolicy: "Mine" })],
  ["DNS None without servers", pod("a", { dnsPolicy: "None" })],
  ["negative grace period", pod("a", { terminationGracePeriodSeconds: -1 })],
  ["active deadline of zero", pod("a", { activeDeadlineSeconds: 0 })],
  ["toleration with an unknown operator", pod("a", { tolerations: [{ key: "a", operator: "Like" }] })],
  ["bad label value", pod("a", {}, { labels: { a: "not ok!" } })],
  ["bad label key", pod("a", {}, { labels: { "-a": "x" } })],
  ["bad annotation key", pod("a", {}, { annotations: { "a b": "x" } })],
  ["bad finalizer", pod("a", {}, { finalizers: ["nonsense finalizer"] })],
  ["unqualified finalizer", pod("a", {}, { finalizers: ["unqualified"] })],
  ["owner without a uid", pod("a", {}, { ownerReferences: [{ apiVersion: "v1", kind: "Pod", name: "x" }] })],
  [
    "two controllers",
    pod(
      "a",
      {},
      {
        ownerReferences: [1, 2].map((n) => ({
          apiVersion: "v1",
          kind: "Pod",
          name: `x${n}`,
          uid: `u${n}`,
          controller: true,
        })),
      },
    ),
  ],
  ["wrong JSON type", pod("a", { containers: "none" })],
  ["user below zero", container({ securityContext: { runAsUser: -1 } })],
  [
    "privileged without escalation",
    container({ securityContext: { privileged: true, allowPrivilegeEscalation: false } }),
  ],
  [
    "host network with another host port",
    pod("a", {
      hostNetwork: true,
      containers: [{ name: "main", image: "x", ports: [{ containerPort: 80, hostPort: 81 }] }],
    }),
  ],
  ["bad name", pod("Bad_Name")],
];

const otherRows: readonly (readonly [title: string, path: string, body: Json])[] = [
  ["Service without ports", at.services, service("a", { ports: [] })],
  ["Service with two unnamed ports", at.services, service("a", { ports: [{ port: 80 }, { port: 81 }] })],
  [
    "Service with a doubled port",
    at.services,
    service("a", {
      ports: [
        { name: "x", port: 80 },
        { name: "y", port: 80 },
      ],
    }),
  ],
  ["Service with an unknown type", at.services, service("a", { type: "Magic" })],
  ["Service with a port out of range", at.services, service("a", { ports: [{ port: 0 }] })],
  ["Service with a bad address", at.services, service("a", { clusterIP: "nonsense" })],
  ["Service with a bad name", at.services, service("1abc")],
  [
    "Service with an external name and no name",
    at.services,
    { apiVersion: "v1", kind: "Service", metadata: { name: "a" }, spec: { type: "ExternalName" } },
  ],
  ["ConfigMap with a bad key", at.configMaps, configMap("a", { "bad key": "x" })],
  ["ConfigMap with a key in both", at.configMaps, { ...configMap("a", { k: "x" }), binaryData: { k: "AAAA" } }],
  ["ConfigMap with broken base64", at.configMaps, { ...configMap("a"), binaryData: { k: "?" } }],
  ["Secret with a bad key", at.secrets, secret({ stringData: { "a b": "x" } })],
  ["Secret with broken base64", at.secrets, secret({ data: { a: "???" } })],
  ["Secret of TLS without a key", at.secrets, secret({ type: "kubernetes.io/tls", stringData: { "tls.crt": "" } })],
  [
    "Secret of a docker config that is none",
    at.secrets,
    secret({ type: "kubernetes.io/dockerconfigjson", stringData: { ".dockerconfigjson": "x" } }),
  ],
  [
    "PersistentVolumeClaim without anything",
    at.claims,
    { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "a" }, spec: {} },
  ],
  [
    "PersistentVolumeClaim of a negative size",
    at.claims,
    {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name: "a" },
      spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "-1" } } },
    },
  ],
  [
    "PersistentVolumeClaim with an unknown mode",
    at.claims,
    {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name: "a" },
      spec: { accessModes: ["Sometimes"], resources: { requests: { storage: "1" } } },
    },
  ],
  [
    "NetworkPolicy with a bad block",
    at.policies,
    {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "a" },
      spec: { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: "x" } }] }] },
    },
  ],
  [
    "NetworkPolicy with an unknown type",
    at.policies,
    {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "a" },
      spec: { podSelector: {}, policyTypes: ["Sideways"] },
    },
  ],
  [
    "Role without verbs",
    at.roles,
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "Role",
      metadata: { name: "a" },
      rules: [{ apiGroups: [""], resources: ["pods"] }],
    },
  ],
  [
    "RoleBinding without a role",
    at.roleBindings,
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", metadata: { name: "a" }, roleRef: {} },
  ],
  [
    "Lease with a negative duration",
    at.leases,
    {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: "a" },
      spec: { leaseDurationSeconds: -1 },
    },
  ],
  [
    "ResourceQuota with a bad quantity",
    at.quotas,
    { apiVersion: "v1", kind: "ResourceQuota", metadata: { name: "a" }, spec: { hard: { pods: "-1" } } },
  ],
  [
    "LimitRange with min above max",
    at.limits,
    {
      apiVersion: "v1",
      kind: "LimitRange",
      metadata: { name: "a" },
      spec: { limits: [{ type: "Container", min: { cpu: "2" }, max: { cpu: "1" } }] },
    },
  ],
];

const widgetRows: readonly (readonly [title: string, spec: Json])[] = [
  ["integer below the minimum", { size: -1 }],
  ["integer above the maximum", { size: 101 }],
  ["number at the exclusive minimum", { weight: 0 }],
  ["number that is no multiple", { weight: 0.7 }],
  ["string for an integer", { size: "1" }],
  ["fraction for an integer", { size: 1.5 }],
  ["value outside the enum", { color: "pink" }],
  ["text too short", { name: "a" }],
  ["text too long", { name: "abcdefghi" }],
  ["text that does not match", { name: "ABC" }],
  ["too many items", { tags: ["a", "b", "c", "d"] }],
  ["doubled item in a set", { names: ["a", "a"] }],
  ["doubled key in a list map", { parts: [{ name: "a" }, { name: "a" }] }],
  ["missing required member", { nested: { level: 1 } }],
  ["null for a member", { name: null }],
  ["null for a nullable member", { nested: { must: "x", maybe: null } }],
  ["too many properties", { labels: { a: "1", b: "2", c: "3" } }],
  ["property value too long", { labels: { a: "abcdef" } }],
  ["bad date", { when: "yesterday" }],
  ["bad address", { address: "1.2.3" }],
  ["bad base64", { bytes: "%%%" }],
  ["neither of oneOf", { either: {} }],
  ["both of oneOf", { either: { a: "1", b: "2" } }],
  ["list for an int-or-string", { port: [] }],
  ["embedded object without a kind", { embedded: { metadata: { name: "x" } } }],
  ["several mistakes at once", { size: -1, color: "pink", name: "A" }],
];

const scripts: Script[] = [
  ...podRows.map(([title, body]): Script => [`Pod: ${title}`, { do: `POST ${at.pods}`, body }]),
  ...otherRows.map(([title, path, body]): Script => [title, { do: `POST ${path}`, body }]),
  ...widgetRows.map(
    ([title, spec]): Script => [
      `custom kind: ${title}`,
      { do: `POST ${at.widgets}`, body: widget("a", spec), loose: title.startsWith("several") },
    ],
  ),
];

/** What is refused and with which words. */
export const validation: Group = {
  name: "validation",
  cases: scripted("validation", scripts),
  breakage: (_request, answer) =>
    answer.body?.details?.causes === undefined
      ? answer
      : { ...answer, body: { ...answer.body, details: { ...answer.body.details, causes: [] } } },
};
