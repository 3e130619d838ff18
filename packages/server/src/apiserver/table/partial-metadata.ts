import type { KubeObject } from "@agent-sandbox/api";

/** The metadata of an object, for clients that need no more. */
export function partialMetadata({ metadata }: KubeObject): KubeObject {
  return { apiVersion: "meta.k8s.io/v1", kind: "PartialObjectMetadata", metadata };
}
