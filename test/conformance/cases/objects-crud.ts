import { expect } from "vitest";
import { at, configMap, inNamespace, pod, sandbox, service, widget } from "../objects.ts";
import { type Script, scripted } from "../scripted.ts";
import { type Group, kase } from "../suite.ts";

const maps = at.configMaps;

const scripts: Script[] = [
  ["create gives the object", { do: `POST ${maps}`, body: configMap("a") }],
  [
    "create twice is AlreadyExists",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `POST ${maps}`, body: configMap("a") },
  ],
  [
    "create with generateName",
    { do: `POST ${maps}`, body: { ...configMap(""), metadata: { generateName: "generated-" } } },
  ],
  [
    "create without a name is refused",
    { do: `POST ${maps}`, body: { apiVersion: "v1", kind: "ConfigMap", metadata: {} } },
  ],
  ["create in another namespace is refused", { do: `POST ${maps}`, body: configMap("a", {}, { namespace: "other" }) }],
  [
    "create with a resourceVersion is refused",
    { do: `POST ${maps}`, body: configMap("a", {}, { resourceVersion: "5" }) },
  ],
  [
    "create of another kind is refused",
    { do: `POST ${maps}`, body: { ...configMap("a"), kind: "Secret" }, loose: true },
  ],
  [
    "create of another version is refused",
    { do: `POST ${maps}`, body: { ...configMap("a"), apiVersion: "v2" }, loose: true },
  ],
  ["create without a kind is accepted for a built-in type", { do: `POST ${maps}`, body: { metadata: { name: "a" } } }],
  [
    "create of a custom kind without a kind is refused",
    { do: `POST ${at.widgets}`, body: { metadata: { name: "a" } } },
  ],
  ["create of broken JSON is refused", { do: `POST ${maps}`, body: "{", loose: true }],
  ["create of an unknown media type is refused", { do: `POST ${maps}`, body: "x", type: "text/html", loose: true }],
  [
    "create of YAML is accepted",
    {
      do: `POST ${maps}`,
      body: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: b\n",
      type: "application/yaml",
    },
  ],
  ["create of a name with capitals is refused", { do: `POST ${maps}`, body: configMap("Bad") }],
  ["create of a name too long is refused", { do: `POST ${maps}`, body: configMap("a".repeat(254)) }],
  [
    "create in a missing namespace is NotFound",
    { do: "POST /api/v1/namespaces/missing-$U/configmaps", body: configMap("a") },
  ],
  [
    "create ignores a status",
    { do: `POST ${at.widgets}`, body: { ...widget("a", { size: 1 }), status: { phase: "Made" } } },
  ],
  [
    "create ignores uid and creationTimestamp",
    {
      do: `POST ${maps}`,
      body: configMap("a", {}, { uid: "mine", creationTimestamp: "2001-01-01T00:00:00Z", generation: 7 }),
    },
  ],
  ["create of a Pod sets the defaults", { do: `POST ${at.pods}`, body: pod("a") }],
  ["create of a rich Pod sets the defaults", { do: `POST ${at.pods}`, body: richPod() }],
  ["create of a Service sets the defaults", { do: `POST ${at.services}`, body: service("a") }],
  [
    "create of a headless Service keeps None",
    {
      do: `POST ${at.services}`,
      body: service("a", { clusterIP: "None" }),
      show: ({ spec }) => [spec.clusterIP, spec.type],
    },
  ],
  [
    "create of a Secret decodes stringData",
    {
      do: `POST ${at.secrets}`,
      body: { apiVersion: "v1", kind: "Secret", metadata: { name: "s" }, stringData: { a: "b" } },
    },
  ],
  ["create of a Sandbox sets the defaults", { do: `POST ${at.sandboxes}`, body: sandbox("a") }],
  [
    "create of a PersistentVolumeClaim",
    {
      do: `POST ${at.claims}`,
      body: volumeClaim(),
      show: ({ spec, status }) => ({ ...spec, storageClassName: undefined, phase: status.phase }),
    },
  ],
  [
    "create of a NetworkPolicy sets the policy types",
    { do: `POST ${at.policies}`, body: policy(), show: ({ spec }) => spec },
  ],
  ["create of a Lease", { do: `POST ${at.leases}`, body: lease(), show: ({ spec }) => spec }],
  ["get gives the object", { do: `POST ${maps}`, body: configMap("a"), show: "nothing" }, { do: `GET ${maps}/a` }],
  ["get of nothing is NotFound", { do: `GET ${maps}/none` }],
  ["get of a custom object that is not there is NotFound", { do: `GET ${at.widgets}/none` }],
  ["get with an unacceptable type is refused", { do: `GET ${maps}`, accept: "text/html", loose: true }],
  ["get as YAML", { do: `GET ${maps}/none`, accept: "application/yaml" }],
  [
    "update replaces the object",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `PUT ${maps}/a`, body: configMap("a", { other: "1" }) },
  ],
  ["update of nothing is NotFound", { do: `PUT ${maps}/none`, body: configMap("none") }],
  [
    "update under another name is refused",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `PUT ${maps}/a`, body: configMap("b") },
  ],
  [
    "update with a stale version is a Conflict",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `PUT ${maps}/a`, body: configMap("a", {}, { resourceVersion: "1" }) },
  ],
  [
    "update with another uid is a Conflict",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `PUT ${maps}/a`, body: configMap("a", {}, { uid: "00000000-0000-4000-8000-000000000000" }), loose: true },
  ],
  [
    "update with an unparsable version is refused",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `PUT ${maps}/a`, body: configMap("a", {}, { resourceVersion: "abc" }), loose: true },
  ],
  [
    "update of a custom object needs a version",
    { do: `POST ${at.widgets}`, body: widget("a", { size: 1 }), show: "nothing" },
    { do: `PUT ${at.widgets}/a`, body: widget("a", { size: 2 }) },
  ],
  [
    "update of immutable data is refused",
    { do: `POST ${maps}`, body: { ...configMap("a"), immutable: true }, show: "nothing" },
    { do: `PUT ${maps}/a`, body: { ...configMap("a", { key: "other" }), immutable: true } },
  ],
  [
    "update of a Pod's containers is refused",
    { do: `POST ${at.pods}`, body: pod("a"), show: "nothing" },
    {
      do: `PATCH ${at.pods}/a`,
      type: "application/merge-patch+json",
      body: { spec: { nodeName: "x", hostname: "h" } },
      loose: true,
    },
  ],
  ["method not allowed on a collection", { do: `PUT ${maps}`, body: configMap("a") }],
  ["method not allowed on an object", { do: `POST ${maps}/a`, body: configMap("a") }],
  ["delete of nothing is NotFound", { do: `DELETE ${maps}/none` }],
  [
    "delete gives a Status with the uid",
    { do: `POST ${maps}`, body: configMap("a"), show: "nothing" },
    { do: `DELETE ${maps}/a` },
    { do: `GET ${maps}/a`, loose: true },
  ],
  [
    "delete of a custom object gives a Status",
    { do: `POST ${at.widgets}`, body: widget("a"), show: "nothing" },
    { do: `DELETE ${at.widgets}/a` },
  ],
];

function richPod() {
  const probe = { httpGet: { path: "/", port: 80 } };
  const volumes = [
    { name: "v", emptyDir: {} },
    { name: "c", configMap: { name: "cm" } },
    { name: "s", secret: { secretName: "x" } },
  ];
  const resources = { limits: { cpu: "500m", memory: "64Mi" } };
  const main = {
    name: "main",
    image: "example.com/app",
    ports: [{ containerPort: 80 }],
    env: [{ name: "POD", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }],
    volumeMounts: [{ name: "v", mountPath: "/v" }],
    readinessProbe: probe,
    livenessProbe: { exec: { command: ["true"] } },
    lifecycle: { preStop: { httpGet: { path: "/", port: 80 } } },
    resources,
  };
  return pod("a", {
    containers: [main],
    initContainers: [{ name: "init", image: "i:latest" }],
    volumes,
    automountServiceAccountToken: false,
  });
}

function volumeClaim() {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "a" }, spec };
}

function policy() {
  const ingress = [{ ports: [{ port: 80 }], from: [{ podSelector: {} }] }];
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "a" },
    spec: { podSelector: {}, ingress, egress: [] },
  };
}

function lease() {
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { name: "a" },
    spec: { holderIdentity: "me", leaseDurationSeconds: 15 },
  };
}

const coded = [
  kase("versions only grow", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const first = await c.create(path, configMap("a"));
    const second = await c.create(path, configMap("b"));
    expect(Number(second.metadata.resourceVersion)).toBeGreaterThan(Number(first.metadata.resourceVersion));
  }),
  kase("an update that changes nothing keeps the version", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const made = await c.create(path, configMap("a"));
    const { body } = await c.api.call("PUT", `${path}/a`, { body: made });
    expect(body.metadata.resourceVersion).toBe(made.metadata.resourceVersion);
  }),
  kase("generation grows with the spec only", async (c) => {
    const path = inNamespace(at.widgets, await c.namespace());
    const made = await c.create(path, widget("a", { size: 1 }));
    const labelled = await c.api.call("PUT", `${path}/a`, {
      body: { ...made, metadata: { ...made.metadata, labels: { a: "b" } } },
    });
    const grown = await c.api.call("PUT", `${path}/a`, { body: { ...labelled.body, spec: { size: 2 } } });
    expect([made, labelled.body, grown.body].map((object) => object.metadata.generation)).toEqual([1, 1, 2]);
  }),
  kase("two writers: one wins", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const made = await c.create(path, configMap("a"));
    const write = (value: string) => c.api.call("PUT", `${path}/a`, { body: { ...made, data: { value } } });
    const answers = await Promise.all([write("1"), write("2"), write("3")]);
    expect(answers.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 409, 409]);
  }),
  kase("generated names differ", async (c) => {
    const path = inNamespace(maps, await c.namespace());
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { generateName: "x-" } };
    const made = await Promise.all([1, 2, 3, 4].map(() => c.create(path, body)));
    expect(new Set(made.map(({ metadata }) => metadata.name)).size).toBe(4);
  }),
];

/** Create, get, update, delete of single objects. */
export const crud: Group = {
  name: "crud",
  cases: [...scripted("crud", scripts), ...coded],
  breakage: (request, answer) =>
    request.method === "POST" && answer.status === 409 ? { ...answer, status: 500 } : answer,
};
