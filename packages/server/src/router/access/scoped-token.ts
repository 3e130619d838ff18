import { createHmac, createPublicKey, type KeyObject, sign, timingSafeEqual, verify } from "node:crypto";

/** What a token allows: one sandbox, until a moment, and possibly only one port. */
export interface TokenScope {
  readonly namespace: string;
  readonly name: string;
  readonly expiresAtSeconds: number;
  readonly port?: number;
  /** The methods of HTTP it is good for; absent: all. A WebSocket is opened with GET, a gRPC call is a POST. */
  readonly methods?: readonly string[];
  /** Binds the token to one incarnation of the name. */
  readonly uid?: string;
}

type UnboundScope = Omit<TokenScope, "uid">;

/** The keys a router verifies with; a token made with any of them is good. */
export interface ScopedTokenKeys {
  /** HMAC secrets, 32 bytes or more, for `v1` tokens. */
  readonly secrets: readonly Uint8Array[];
  /** Ed25519 public keys by key id, for `v2` tokens. */
  readonly publicKeys: ReadonlyMap<string, KeyObject>;
}

/** The uid that the sandbox of a name has at this moment; undefined where there is none. */
export type FindUid = (namespace: string, name: string) => string | undefined;

const context = {
  v1: "agent-sandbox/scoped-token/v1.",
  v2: "agent-sandbox/scoped-token/v2.",
  v3: "agent-sandbox/scoped-token/v3.",
} as const;
export const secretBytesMin = 32;

interface Payload {
  readonly ns: string;
  readonly name: string;
  readonly exp: number;
  readonly port?: number;
  readonly methods?: readonly string[];
  /** Only of a `v1` or `v2` token that another issuer made; ours keep it out of the text. */
  readonly uid?: string;
  readonly kid?: string;
}

/**
 * Makes a `v1` token, or a `v3` token where it is for one incarnation: its signature covers the uid, which its text does not contain, because an
 * address that people pass on is no place for it. Preconditions: the secret has at least `secretBytesMin` bytes.
 */
export function mintScopedToken({ uid, ...scope }: TokenScope, secret: Uint8Array): string {
  const payload = encodePayload(scope);
  if (uid === undefined) return `v1.${payload}.${hmac(secret, context.v1 + payload)}`;
  return `v3.${payload}.${hmac(secret, boundText(payload, uid))}`;
}

/** Makes a `v2` token with an Ed25519 key. Exported for tests. */
export function mintSignedToken(
  scope: UnboundScope,
  key: { readonly kid: string; readonly privateKey: KeyObject },
): string {
  const payload = encodePayload(scope, key.kid);
  return `v2.${payload}.${sign(null, Buffer.from(context.v2 + payload), key.privateKey).toString("base64url")}`;
}

/** What a token is held against. */
export interface TokenCheck {
  readonly keys: ScopedTokenKeys;
  readonly nowMs: number;
  readonly uidOf: FindUid;
}

/** The scope of a token that is genuine and not expired, else undefined: callers need not know which it was. */
export function tryVerifyScopedToken(token: string, { keys, nowMs, uidOf }: TokenCheck): TokenScope | undefined {
  const [version, payload, signature, ...rest] = token.split(".");
  if (payload === undefined || signature === undefined || rest.length > 0) return undefined;
  const decoded = tryDecode(payload);
  if (decoded === undefined) return undefined;
  const uid = version === "v3" ? uidOf(decoded.ns, decoded.name) : decoded.uid;
  if (!isGenuine({ version, payload, signature, kid: decoded.kid, uid }, keys)) return undefined;
  // The second of expiry itself is too late: there is no allowance for skew.
  if (Math.floor(nowMs / 1000) >= decoded.exp) return undefined;
  return {
    namespace: decoded.ns,
    name: decoded.name,
    expiresAtSeconds: decoded.exp,
    ...(decoded.port !== undefined && { port: decoded.port }),
    ...(decoded.methods !== undefined && { methods: decoded.methods }),
    ...(uid !== undefined && { uid }),
  };
}

/** Reads a key ring of the form `{"keys":[{"kid","publicKey"}]}`, the keys as PEM or base64 of 32 raw bytes. */
export function parseKeyRing(text: string): ReadonlyMap<string, KeyObject> {
  const { keys } = JSON.parse(text) as { keys: { kid: string; publicKey: string }[] };
  return new Map(keys.map(({ kid, publicKey }) => [kid, parsePublicKey(publicKey)]));
}

function parsePublicKey(text: string): KeyObject {
  if (text.includes("BEGIN")) return createPublicKey(text);
  const x = Buffer.from(text, "base64").toString("base64url");
  return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
}

function encodePayload({ namespace, name, expiresAtSeconds, port, methods }: UnboundScope, kid?: string): string {
  const payload: Payload = {
    ns: namespace,
    name,
    exp: expiresAtSeconds,
    ...(port !== undefined && { port }),
    ...(methods !== undefined && { methods }),
    ...(kid !== undefined && { kid }),
  };
  return Buffer.from(JSON.stringify(payload)).toString("base64url");
}

function isGenuine(
  token: {
    readonly version: string | undefined;
    readonly payload: string;
    readonly signature: string;
    readonly kid: string | undefined;
    readonly uid: string | undefined;
  },
  keys: ScopedTokenKeys,
): boolean {
  const { version, payload, signature, kid, uid } = token;
  const isSigned = (text: string): boolean => keys.secrets.some((secret) => isSameText(hmac(secret, text), signature));
  if (version === "v1") return isSigned(context.v1 + payload);
  if (version === "v3") return uid !== undefined && uid !== "" && isSigned(boundText(payload, uid));
  const publicKey = version === "v2" && kid !== undefined ? keys.publicKeys.get(kid) : undefined;
  if (publicKey === undefined) return false;
  return verify(null, Buffer.from(context.v2 + payload), publicKey, Buffer.from(signature, "base64url"));
}

/** What the signature of a `v3` token covers; the payload is base64url, so that the dot ends it. */
function boundText(payload: string, uid: string): string {
  return `${context.v3}${payload}.${uid}`;
}

function hmac(secret: Uint8Array, text: string): string {
  return createHmac("sha256", secret).update(text).digest("base64url");
}

function isSameText(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** The payload where it has the right shape; the signature is checked by the caller before anything of it is believed. */
function tryDecode(encoded: string): Payload | undefined {
  try {
    const value = JSON.parse(Buffer.from(encoded, "base64url").toString("utf8")) as Partial<Payload> | null;
    const isShaped = typeof value?.ns === "string" && typeof value.name === "string" && Number.isSafeInteger(value.exp);
    // A limit that cannot be read is no limit that could be kept.
    const isReadable = value?.methods === undefined || Array.isArray(value.methods);
    return isShaped && isReadable ? (value as Payload) : undefined;
  } catch {
    return undefined;
  }
}
