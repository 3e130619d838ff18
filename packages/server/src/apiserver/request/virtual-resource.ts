import type { KubeObject } from "@agent-sandbox/api";
import type { UserInfo } from "./user-info.ts";

/** What a virtual resource may know about a request. */
export interface VirtualRequest {
  readonly user: UserInfo;
  /** Empty for cluster-scoped resources. */
  readonly namespace: string;
  readonly name: string;
  readonly signal?: AbortSignal;
}

/** A kind that is answered and never stored, such as a review or a metric; only the verbs that are there are served. */
export interface VirtualResource {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** Answers POST: the object with its status filled in. */
  create?(object: KubeObject, request: VirtualRequest): Promise<KubeObject>;
  /** Answers GET of one object. */
  get?(request: VirtualRequest): Promise<KubeObject>;
  /** Answers GET of the collection. */
  list?(request: VirtualRequest): Promise<readonly KubeObject[]>;
}
