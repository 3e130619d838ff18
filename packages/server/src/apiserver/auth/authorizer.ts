import type { UserInfo } from "../request/user-info.ts";

/** A request for objects of the API. Strings that do not apply are empty, as in Kubernetes. */
export interface ResourceAttributes {
  readonly kind: "resource";
  /** `get list watch create update patch delete deletecollection`, or a virtual verb such as `bind`. */
  readonly verb: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  /** Empty for cluster-scoped objects and for requests across all namespaces. */
  readonly namespace: string;
  readonly name: string;
}

/** A request for a plain path such as `/livez`; the verb is the lower-case HTTP method. */
export interface NonResourceAttributes {
  readonly kind: "non-resource";
  readonly verb: string;
  readonly path: string;
}

/** What is asked of an authoriser. */
export type AuthorizationAttributes = ResourceAttributes | NonResourceAttributes;

/** The answer; `no-opinion` is refused like `deny` when no other rule allows. */
export interface Decision {
  readonly verdict: "allow" | "deny" | "no-opinion";
  /** For the audit log and for SubjectAccessReview; never empty on `allow`. */
  readonly reason: string;
}

/** Decides from memory, so that a check costs microseconds and never waits. */
export interface Authorizer {
  authorize(attributes: AuthorizationAttributes, user: UserInfo): Decision;
}
