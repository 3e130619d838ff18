import type { UserInfo } from "../request/user-info.ts";

/** The subject of a client certificate whose chain the TLS layer has verified against our CA. */
export interface CertificateSubject {
  /** Becomes the user name. */
  readonly commonName: string;
  /** Become the groups. */
  readonly organizations: readonly string[];
}

/** What a connection or request presented; a caller inside the process brings its identity ready-made. */
export type Credentials =
  | { readonly kind: "known"; readonly user: UserInfo }
  | { readonly kind: "presented"; readonly certificate?: CertificateSubject; readonly bearerToken?: string }
  | { readonly kind: "none" };

/** Turns credentials into a user. */
export interface Authenticator {
  /**
   * Resolves to the user with `system:authenticated` among its groups, or to `anonymousUser` when nothing was presented.
   * Throws ApiError `Unauthorized` when something was presented that is not valid.
   */
  authenticate(credentials: Credentials): Promise<UserInfo>;
}

/** The group of every caller that proved who it is. */
export const authenticatedGroup = "system:authenticated";

/** The group of callers that presented nothing. */
export const unauthenticatedGroup = "system:unauthenticated";

/** The group that may do everything; checked before any role. */
export const mastersGroup = "system:masters";

/** Who a request without credentials acts as; roles give it the health endpoints and the version only. */
export const anonymousUser: UserInfo = { username: "system:anonymous", groups: [unauthenticatedGroup] };

/** Adds `system:authenticated` to a user's groups unless it is there. */
export function asAuthenticated(user: UserInfo): UserInfo {
  return user.groups.includes(authenticatedGroup) ? user : { ...user, groups: [...user.groups, authenticatedGroup] };
}
