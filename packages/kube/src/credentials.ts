/** Where an API server is and how to prove to it who is asking. */
export interface Credentials {
  /** For example `https://10.0.0.1:6443`; a path in it goes before every request's. */
  readonly server: string;
  /** PEM; absent: the certificate authorities that Node knows. */
  readonly ca?: string;
  /** PEM of the client certificate. */
  readonly cert?: string;
  /** PEM of the client certificate's key. */
  readonly key?: string;
  /** The name to expect in the server's certificate; default the host of `server`. */
  readonly serverName?: string;
  /** Accepts any certificate; for tests and for users who said so. */
  readonly insecureSkipTlsVerify?: boolean;
  /** Headers that authenticate one request; asked for each, so that tokens may change. */
  readonly authorize?: () => Promise<Readonly<Record<string, string>>>;
}

/** Credentials with a token that stays. */
export function bearerToken(token: string): NonNullable<Credentials["authorize"]> {
  const headers = { authorization: `Bearer ${token}` };
  return () => Promise.resolve(headers);
}
