/** Where the API server lies. */
export const apiserverFolder = "packages/server/src/apiserver";

/** One layer of the API server: its folders, low to high, and what each may import. */
export interface Layer {
  readonly name: string;
  readonly folders: Readonly<Record<string, readonly string[]>>;
}

const store = "packages/server/src/store";
const kube = "packages/kube";

/** The API server from the bottom to the top. A folder imports what stands above it in this table and what its row names, nothing else. */
export const apiserverLayers: readonly Layer[] = [
  {
    name: "wire",
    folders: { json: [], protobuf: ["json"], table: ["json"], request: ["json", "protobuf"] },
  },
  {
    name: "schema",
    folders: { schema: ["json"], cel: ["schema"], apply: ["json", "schema"] },
  },
  { name: "registry", folders: { registry: ["request", "schema", "table"] } },
  { name: "storage", folders: { storage: ["registry", store] } },
  {
    name: "kinds",
    folders: {
      crd: ["cel", "json", "registry", "request", "schema", "storage", "table", store, kube],
      kinds: ["crd", "json", "registry", "schema", "table"],
    },
  },
  {
    name: "auth and admission",
    folders: {
      audit: ["request"],
      auth: ["registry", "request", "storage"],
      admission: ["auth", "request", "schema"],
    },
  },
  {
    name: "scope",
    folders: {
      sleep: ["auth", "request", "storage", kube],
      scope: ["admission", "audit", "auth", "kinds", "registry", "request", "sleep", "storage", kube],
    },
  },
  {
    name: "verbs",
    folders: {
      verbs: [
        "admission",
        "apply",
        "auth",
        "cel",
        "json",
        "registry",
        "request",
        "schema",
        "scope",
        "storage",
        "table",
        store,
      ],
      streams: ["json", "request", "scope", "verbs"],
      subresources: ["json", "registry", "request", "scope", "streams", "verbs"],
      openapi: ["json", "registry", "request", "schema", "scope"],
      discovery: ["openapi", "registry", "request", "scope"],
      usage: ["auth", "json", "request", "scope", kube],
    },
  },
  {
    name: "http",
    folders: {
      pipeline: [
        "auth",
        "discovery",
        "registry",
        "request",
        "schema",
        "scope",
        "storage",
        "streams",
        "subresources",
        "verbs",
        store,
      ],
      http: ["auth", "pipeline", "request", kube],
    },
  },
];
