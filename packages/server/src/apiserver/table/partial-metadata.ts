import type { ApiObject } from "../object.ts";

/** The metadata of an object, for clients that need no more. */
export function partialMetadata({ metadata }: ApiObject): ApiObject {
  return { apiVersion: "meta.k8s.io/v1", kind: "PartialObjectMetadata", metadata };
}
