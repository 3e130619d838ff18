/** The subset of OpenAPI v3 that Kubernetes documents and CRD schemas use. */
export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  description?: string;
  default?: unknown;
  enum?: readonly unknown[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  pattern?: string;
  nullable?: boolean;
  required?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  not?: Schema;
  "x-kubernetes-group-version-kind"?: unknown;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-preserve-unknown-fields"?: boolean;
  "x-kubernetes-embedded-resource"?: boolean;
  "x-kubernetes-list-type"?: "atomic" | "map" | "set";
  "x-kubernetes-list-map-keys"?: string[];
  "x-kubernetes-map-type"?: "atomic" | "granular";
  "x-kubernetes-patch-strategy"?: string;
  "x-kubernetes-patch-merge-key"?: string;
  "x-kubernetes-validations"?: { rule: string; message?: string; messageExpression?: string; reason?: string }[];
}

/** Definitions by their OpenAPI name. */
export type Definitions = Record<string, Schema>;

/** The definition name at the end of a `$ref`. */
export function refName(ref: string): string {
  return ref.slice(ref.lastIndexOf("/") + 1);
}

/** The definition of that name; a missing one means that the committed document and the table of kinds disagree. */
export function definitionOf(definitions: Definitions, name: string): Schema {
  const found = definitions[name];
  if (found === undefined) throw new Error(`definition ${name} is missing; run npm run generate with network access`);
  return found;
}
