import type { KubeObject } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";

/** What is about to be done; patch and apply arrive as `update` (or `create`) with the resulting object. */
export interface AdmissionAttributes {
  readonly verb: "create" | "update" | "delete" | "connect";
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  /** Empty for the object itself; else `status`, `scale`, `binding`, `exec`, ... */
  readonly subresource: string;
  /** Empty for cluster-scoped objects. */
  readonly namespace: string;
  /** Empty on create with generateName before the name is made. */
  readonly name: string;
  /** The object to be stored; `mutate` changes it in place. Undefined on delete; the options on connect. */
  readonly object: KubeObject | undefined;
  /** The stored object on update and delete. Never changed. */
  readonly oldObject: KubeObject | undefined;
  readonly user: UserInfo;
  readonly dryRun: boolean;
  /** Adds a `Warning: 299` header to the answer. */
  readonly warn: (message: string) => void;
}

/** One rule set. The API server runs every `mutate` in order, then schema validation, then every `validate` in order. */
export interface Admission {
  /** In Kubernetes' spelling, for example `PodSecurity`. */
  readonly name: string;
  /** Cheap test that keeps uninterested rules off the hot path. */
  handles(attributes: AdmissionAttributes): boolean;
  /** Changes `attributes.object` in place, or throws ApiError. */
  mutate?(attributes: AdmissionAttributes): Promise<void> | void;
  /** Throws ApiError to refuse. */
  validate?(attributes: AdmissionAttributes): Promise<void> | void;
}
