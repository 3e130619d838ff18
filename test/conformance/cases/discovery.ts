import type { Json } from "../api-call.ts";
import { type Script, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/** The kinds that both servers have, by the path that lists them. */
const kinds: Readonly<Record<string, readonly string[]>> = {
  "/api/v1": [
    "configmaps",
    "events",
    "limitranges",
    "namespaces",
    "namespaces/finalize",
    "namespaces/status",
    "nodes",
    "nodes/status",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "persistentvolumes",
    "pods",
    "pods/attach",
    "pods/binding",
    "pods/eviction",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/status",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "serviceaccounts/token",
    "services",
    "services/status",
  ],
  "/apis/rbac.authorization.k8s.io/v1": ["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
  "/apis/networking.k8s.io/v1": ["networkpolicies"],
  "/apis/coordination.k8s.io/v1": ["leases"],
  "/apis/discovery.k8s.io/v1": ["endpointslices"],
  "/apis/events.k8s.io/v1": ["events"],
  "/apis/node.k8s.io/v1": ["runtimeclasses"],
  "/apis/scheduling.k8s.io/v1": ["priorityclasses"],
  "/apis/storage.k8s.io/v1": ["storageclasses"],
  "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions", "customresourcedefinitions/status"],
  "/apis/authentication.k8s.io/v1": ["tokenreviews", "selfsubjectreviews"],
  "/apis/authorization.k8s.io/v1": [
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "subjectaccessreviews",
  ],
  "/apis/agents.x-k8s.io/v1beta1": ["sandboxes", "sandboxes/status"],
  "/apis/extensions.agents.x-k8s.io/v1beta1": [
    "sandboxclaims",
    "sandboxtemplates",
    "sandboxwarmpools",
    "sandboxwarmpools/scale",
  ],
  "/apis/conformance.test/v1": ["widgets", "widgets/scale", "widgets/status"],
};

const resourceScripts: Script[] = Object.entries(kinds).flatMap(([path, names]) =>
  names.map(
    (name): Script => [
      `${path} describes ${name}`,
      { do: `GET ${path}`, show: (list) => withoutHash(list.resources.find((entry: Json) => entry.name === name)) },
    ],
  ),
);

/** The hash of a built-in kind's stored form belongs to the release, not to the API. */
function withoutHash({ storageVersionHash: _hash, ...entry }: Json): Json {
  return entry;
}

const groupNames = ["agents.x-k8s.io", "conformance.test", "rbac.authorization.k8s.io", "apiextensions.k8s.io"];

const scripts: Script[] = [
  ["/api names the versions", { do: "GET /api", show: ({ kind, versions }) => ({ kind, versions }) }],
  ...groupNames.map(
    (name): Script => [
      `/apis has group ${name}`,
      {
        do: "GET /apis",
        show: ({ kind, apiVersion, groups }) => ({
          kind,
          apiVersion,
          group: groups.find((each: Json) => each.name === name),
        }),
      },
    ],
  ),
  ["/apis/<group> is the group", { do: "GET /apis/agents.x-k8s.io" }],
  [
    "an aggregated document has every resource of a group",
    {
      do: "GET /apis",
      accept: aggregated,
      show: ({ kind, apiVersion, items }) => ({
        kind,
        apiVersion,
        item: items.find((each: Json) => each.metadata.name === "conformance.test"),
      }),
    },
  ],
  [
    "the aggregated document of the legacy group has pods",
    {
      do: "GET /api",
      accept: aggregated,
      show: ({ kind, items }) => ({
        kind,
        pods: items[0].versions[0].resources.find((each: Json) => each.resource === "pods").responseKind,
      }),
    },
  ],
  [
    "/version tells major and minor",
    { do: "GET /version", show: ({ major, minor }) => ({ major: typeof major, minor: typeof minor }) },
  ],
  ["/livez is ok", { do: "GET /livez" }],
  ["/readyz is ok", { do: "GET /readyz" }],
  ["/healthz is ok", { do: "GET /healthz" }],
  ["an unknown group is not found", { do: "GET /apis/nobody.example/v1" }],
  ["an unknown resource is not found", { do: "GET /api/v1/nosuchthings" }],
  ["an unknown namespaced resource is not found", { do: "GET /api/v1/namespaces/default/nosuchthings/x" }],
  ["an unknown version of a known group is not found", { do: "GET /apis/agents.x-k8s.io/v9/sandboxes" }],
  ["an unknown subresource is not found", { do: "GET /api/v1/namespaces/default/configmaps/x/nosuch" }],
  [
    "/openapi/v3 names a document per version",
    { do: "GET /openapi/v3", show: ({ paths }) => Object.keys(paths["apis/conformance.test/v1"]) },
  ],
  [
    "the OpenAPI document has the schema of a kind",
    {
      do: "GET /openapi/v3/apis/conformance.test/v1",
      show: ({ components }) => components.schemas["test.conformance.v1.Widget"]["x-kubernetes-group-version-kind"],
    },
  ],
  [
    "the OpenAPI document has the paths of a kind",
    {
      do: "GET /openapi/v3/apis/conformance.test/v1",
      show: ({ paths }) =>
        Object.keys(paths)
          .filter((path) => path.includes("/widgets"))
          .sort(),
    },
  ],
];

/** What a client can find out about the server. */
export const discovery: Group = {
  name: "discovery",
  cases: scripted("discovery", [...resourceScripts, ...scripts]),
  breakage: (request, answer) =>
    request.path === "/api/v1" ? { ...answer, body: withoutShortNames(answer.body) } : answer,
};

function withoutShortNames(list: Json): Json {
  return { ...list, resources: list.resources.map(({ shortNames: _names, ...entry }: Json) => entry) };
}
