import { type Definitions, definitionOf, refName, type Schema } from "./schema.ts";

/** Built-in types that CRD sources may name in `$ref`. */
const builtinTypes: Record<string, string> = {
  IntOrString: "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
  NetworkPolicyEgressRule: "io.k8s.api.networking.v1.NetworkPolicyEgressRule",
  NetworkPolicyIngressRule: "io.k8s.api.networking.v1.NetworkPolicyIngressRule",
  PersistentVolumeClaimSpec: "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
  PodSpec: "io.k8s.api.core.v1.PodSpec",
};

const quantityPattern =
  "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

const strings: Schema = { type: "object", additionalProperties: { type: "string" } };

/** Definitions whose form in a CRD differs from their definition. */
const inCrds: Record<string, Schema> = {
  "io.k8s.apimachinery.pkg.api.resource.Quantity": {
    anyOf: [{ type: "integer" }, { type: "string" }],
    pattern: quantityPattern,
    "x-kubernetes-int-or-string": true,
  },
  "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
    anyOf: [{ type: "integer" }, { type: "string" }],
    "x-kubernetes-int-or-string": true,
  },
  // Metadata inside a spec is not an object's own: only what a template can pass on exists.
  "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
    type: "object",
    properties: {
      annotations: strings,
      finalizers: { type: "array", items: { type: "string" } },
      labels: strings,
      name: { type: "string" },
      namespace: { type: "string" },
    },
  },
};

/** The schema of a condition with the limits that Kubernetes puts on it. */
const condition: Schema = {
  type: "object",
  required: ["lastTransitionTime", "message", "reason", "status", "type"],
  properties: {
    lastTransitionTime: { type: "string", format: "date-time" },
    message: { type: "string", maxLength: 32768 },
    observedGeneration: { type: "integer", format: "int64", minimum: 0 },
    reason: { type: "string", minLength: 1, maxLength: 1024, pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" },
    status: { type: "string", enum: ["True", "False", "Unknown"] },
    type: {
      type: "string",
      maxLength: 316,
      pattern:
        "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    },
  },
};

/** The structural schema of a built-in type by its short name, or undefined where CRDs may not name it. */
export function builtinSchema(definitions: Definitions, name: string): Schema | undefined {
  if (name === "Condition") return condition;
  const definition = builtinTypes[name];
  return definition === undefined ? undefined : inline(definitions, { $ref: definition });
}

/** Fills in references and drops what only strategic merge patch reads: CRDs have none. */
function inline(definitions: Definitions, schema: Schema): Schema {
  const {
    $ref,
    "x-kubernetes-patch-strategy": _strategy,
    "x-kubernetes-patch-merge-key": _key,
    properties,
    items,
    additionalProperties,
    ...own
  } = schema;
  if ($ref !== undefined) {
    const name = refName($ref);
    const target = inCrds[name] ?? inline(definitions, definitionOf(definitions, name));
    return { ...target, ...own };
  }
  const child = (value: Schema) => inline(definitions, value);
  return {
    ...own,
    ...(properties === undefined ? {} : { properties: mapValues(properties, child) }),
    ...(items === undefined ? {} : { items: child(items) }),
    ...(additionalProperties === undefined ? {} : { additionalProperties: child(additionalProperties) }),
  };
}

function mapValues<T>(record: Record<string, T>, map: (value: T) => T): Record<string, T> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]));
}
