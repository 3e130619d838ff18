import type { Definitions } from "./schema.ts";

const objectMeta = { $ref: "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" };
const time = { $ref: "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Time" };
const usage = {
  type: "object",
  additionalProperties: { $ref: "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity" },
};
const measured = { metadata: objectMeta, timestamp: time, window: { type: "string" } };
const identity = { apiVersion: { type: "string" }, kind: { type: "string" } };

/** Shapes of the resource metrics API, which the Kubernetes module's documents leave out because another server serves it. */
export const metricsDefinitions: Definitions = {
  "io.k8s.metrics.v1beta1.ContainerMetrics": {
    type: "object",
    required: ["name", "usage"],
    properties: { name: { type: "string" }, usage },
  },
  "io.k8s.metrics.v1beta1.NodeMetrics": {
    type: "object",
    required: ["timestamp", "window", "usage"],
    properties: { ...identity, ...measured, usage },
  },
  "io.k8s.metrics.v1beta1.PodMetrics": {
    type: "object",
    required: ["timestamp", "window", "containers"],
    properties: {
      ...identity,
      ...measured,
      containers: {
        type: "array",
        "x-kubernetes-list-type": "atomic",
        items: { $ref: "#/definitions/io.k8s.metrics.v1beta1.ContainerMetrics" },
      },
    },
  },
};
