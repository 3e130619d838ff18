import type { ServiceAccount } from "@agent-sandbox/api";

/** The object a token lives and dies with. */
export interface BoundObjectReference {
  readonly kind?: string;
  readonly apiVersion?: string;
  readonly name?: string;
  readonly uid?: string;
}

/** The spec of `authentication.k8s.io/v1` TokenRequest. */
export interface TokenRequestSpec {
  readonly audiences?: readonly string[];
  readonly expirationSeconds?: number;
  readonly boundObjectRef?: BoundObjectReference;
}

/** A signed token and when it ends. */
export interface IssuedToken {
  readonly token: string;
  /** RFC 3339, seconds. */
  readonly expirationTimestamp: string;
  /** What the token really got: defaults filled in. */
  readonly spec: Required<Omit<TokenRequestSpec, "boundObjectRef">> & Pick<TokenRequestSpec, "boundObjectRef">;
  /** Goes into the audit log as the credential id. */
  readonly tokenId: string;
}

/** Makes ServiceAccount tokens; the API server calls it for `POST serviceaccounts/<name>/token`. */
export interface TokenIssuer {
  /** Throws ApiError `Invalid`, `NotFound` or `Conflict` when the spec or the bound object does not hold. */
  issue(serviceAccount: ServiceAccount, spec: TokenRequestSpec): Promise<IssuedToken>;
  /** The body of `/.well-known/openid-configuration`. */
  discoveryDocument(): Record<string, unknown>;
  /** The body of `/openid/v1/jwks`: the public keys that tokens are signed with. */
  keySet(): Promise<{ keys: unknown[] }>;
}
