import { createHash, timingSafeEqual } from "node:crypto";
import { unauthorized } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import { type Authenticator, anonymousUser, asAuthenticated, type Credentials } from "./authenticator.ts";
import type { ServiceAccountTokens } from "./service-account-tokens.ts";

/** A bearer token that an operator wrote down. */
export interface StaticToken {
  readonly token: string;
  readonly user: UserInfo;
}

/** Accepts client certificates, ServiceAccount tokens and static tokens. */
export class EngineAuthenticator implements Authenticator {
  readonly #tokens: ServiceAccountTokens;
  readonly #staticTokens: readonly { digest: Buffer; user: UserInfo }[];

  constructor(tokens: ServiceAccountTokens, staticTokens: readonly StaticToken[] = []) {
    this.#tokens = tokens;
    this.#staticTokens = staticTokens.map(({ token, user }) => ({
      digest: digestOf(token),
      user: asAuthenticated(user),
    }));
  }

  async authenticate(credentials: Credentials): Promise<UserInfo> {
    if (credentials.kind === "known") return credentials.user;
    if (credentials.kind === "none") return anonymousUser;
    const { certificate, bearerToken } = credentials;
    if (certificate !== undefined && certificate.commonName !== "") {
      return asAuthenticated({ username: certificate.commonName, groups: certificate.organizations });
    }
    if (bearerToken === undefined) return anonymousUser;
    const user = this.#staticUser(bearerToken) ?? (await this.#tokens.verify(bearerToken))?.user;
    if (user === undefined) throw unauthorized();
    return user;
  }

  /** For TokenReview: who the token is, and for which of the audiences. */
  async review(
    token: string,
    audiences?: readonly string[],
  ): Promise<{ user: UserInfo; audiences: readonly string[] } | undefined> {
    const user = this.#staticUser(token);
    if (user !== undefined) return { user, audiences: audiences ?? [] };
    return audiences === undefined ? this.#tokens.verify(token) : this.#tokens.verify(token, audiences);
  }

  /** Compares digests in constant time, so that an answer's delay tells nothing about a token. */
  #staticUser(token: string): UserInfo | undefined {
    if (this.#staticTokens.length === 0) return undefined;
    const digest = digestOf(token);
    return this.#staticTokens.find((known) => timingSafeEqual(known.digest, digest))?.user;
  }
}

function digestOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
