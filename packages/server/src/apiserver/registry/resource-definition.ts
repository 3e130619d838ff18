import type { KubeObject } from "@agent-sandbox/api";
import type { FieldError } from "../schema/field-error.ts";
import type { Schema } from "../schema/schema.ts";
import type { ColumnDefinition } from "../table/column.ts";

/** Where a kind keeps its replica counts; the paths start with a dot, as in a CRD. */
export interface ScalePaths {
  readonly specReplicasPath: string;
  readonly statusReplicasPath: string;
  readonly labelSelectorPath?: string;
}

/** One served or stored version of a resource. */
export interface VersionDefinition {
  readonly name: string;
  readonly served: boolean;
  readonly schema: Schema;
  readonly columns: readonly ColumnDefinition[];
  readonly hasStatus: boolean;
  readonly scale?: ScalePaths;
  /** Sent as a `Warning` header with every answer of this version. */
  readonly deprecationWarning?: string;
  /** Paths such as `.spec.color` that field selectors may use besides name and namespace. */
  readonly selectableFields: readonly string[];
}

/** What the strategy of a kind may know about a request. */
export interface StrategyContext {
  readonly nowMs: number;
  readonly uuid: () => string;
  readonly subresource: string;
  readonly username: string;
  /** The kinds served at this moment. */
  kinds(): readonly ResourceDefinition[];
  warn(message: string): void;
}

/** Rules of one built-in kind beyond its schema; each hook is optional. */
export interface Strategy {
  /** Fills in defaults; runs before validation on every write. */
  applyDefaults?(object: KubeObject, context: StrategyContext): void;
  /** Sets what only the server decides on a fresh object. */
  prepareCreate?(object: KubeObject, context: StrategyContext): void;
  /** Restores what an update may not touch. */
  prepareUpdate?(object: KubeObject, old: KubeObject, context: StrategyContext): void;
  validate?(object: KubeObject): FieldError[];
  /** What is demanded of a fresh object only. */
  validateCreate?(object: KubeObject): FieldError[];
  validateUpdate?(object: KubeObject, old: KubeObject): FieldError[];
  /** Values for field selectors beyond metadata.name and metadata.namespace. */
  selectableFields?(object: KubeObject): Record<string, string>;
  /** The grace period of a delete, in seconds; zero removes at once. */
  gracePeriodSeconds?(object: KubeObject, requested: number | undefined): number;
  /** Whether something besides finalizers keeps a deleted object, as spec.finalizers keep a namespace. */
  holdsDeletion?(object: KubeObject): boolean;
  /** Changes an object that was just marked as going, as a namespace becomes Terminating. */
  markDeletion?(object: KubeObject): void;
  /** Whether DELETE answers the object itself instead of a Status. */
  readonly returnsDeleted?: boolean;
  /** Rule for the object's name; the default is a DNS subdomain. */
  readonly nameRule?: "subdomain" | "label" | "label1035" | "path-segment";
  /** Whether an update without a resourceVersion is refused, as for leases and custom resources. */
  readonly requiresResourceVersion?: boolean;
  /** Whether a PUT to a name that does not exist creates the object. */
  readonly createsOnUpdate?: boolean;
  /** Lifetime after which the server removes the object by itself. */
  readonly timeToLiveMs?: number;
  /** Whether spec changes bump `metadata.generation`. */
  readonly hasGeneration?: boolean;
}

/** A kind that the server stores: everything the generic code needs to know about it. */
export interface ResourceDefinition {
  readonly group: string;
  readonly resource: string;
  readonly singular: string;
  readonly kind: string;
  readonly listKind: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  readonly versions: readonly VersionDefinition[];
  readonly storageVersion: string;
  /** Subresources besides status and scale, such as `exec`. */
  readonly subresources: readonly string[];
  readonly strategy: Strategy;
  /** Set for kinds that come from a CustomResourceDefinition. */
  readonly custom?: CustomResource;
  /** Store resource that holds the rows when it is not the resource itself: events.k8s.io reads core events. */
  readonly storedAs?: { readonly group: string; readonly resource: string };
  /** Turns an object of one version into another; absent when there is one version or the versions are alike. */
  readonly convert?: (object: KubeObject, toVersion: string) => KubeObject | Promise<KubeObject>;
}

/** What is particular to kinds defined by a CustomResourceDefinition. */
export interface CustomResource {
  readonly crdName: string;
  readonly crdUid: string;
}

/** The definition of a served version, or undefined. */
export function findVersion(definition: ResourceDefinition, name: string): VersionDefinition | undefined {
  return definition.versions.find((version) => version.name === name);
}
