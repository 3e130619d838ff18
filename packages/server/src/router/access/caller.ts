import type { IncomingMessage } from "node:http";

/** Who a user of the API is, in the words of a TokenReview. */
export interface User {
  readonly username: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** What a listener knows of everybody who connects to it. */
export type ListenerTrust =
  /** Callers prove who they are with each request. */
  | { readonly kind: "credentials" }
  /** A tunnel that a user opened through the API server; every request in it is that user's. */
  | { readonly kind: "tunnel"; readonly user: User }
  /** As `credentials`, for a caller on this machine or in this Pod, where a tunnel ends. */
  | { readonly kind: "loopback" }
  /** The loopback listener for clients that can send no credential. */
  | { readonly kind: "insecure" };

/** What a request presented, best proof first. */
export interface Credentials {
  readonly bearer?: string;
  /** The verified client certificate's user, on listeners with mTLS. */
  readonly certificateUser?: User;
  /** A signed link's token out of the query or the cookie. */
  readonly linkToken?: string;
  /** What the request wants to do; tokens may allow only some methods. */
  readonly method?: string;
}

/** The bearer token of a request; other schemes count as absent. */
export function bearerOf(request: Pick<IncomingMessage, "headers">): string | undefined {
  const match = /^bearer\s+(.*)$/i.exec(request.headers.authorization ?? "");
  const token = match?.[1]?.trim();
  return token === undefined || token === "" ? undefined : token;
}
