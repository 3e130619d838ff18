import { createHash, createPrivateKey, createPublicKey, type KeyObject, randomUUID } from "node:crypto";
import {
  badRequest,
  conflict,
  formatTimestamp,
  invalid,
  nodes,
  notFound,
  pods,
  type ServiceAccount,
  secrets,
  serviceAccounts,
} from "@agent-sandbox/api";
import { exportJWK, type JWTPayload, jwtVerify, SignJWT } from "jose";
import type { UserInfo } from "../request/user-info.ts";
import type { ObjectReader } from "./object-reader.ts";
import type { BoundObjectReference, IssuedToken, TokenIssuer, TokenRequestSpec } from "./token-issuer.ts";

/** The shortest and longest life that Kubernetes grants, and its default. */
const expirationMinSeconds = 600;
const expirationMaxSeconds = 2 ** 32;
const expirationDefaultSeconds = 3600;

/** Verified signatures kept: a signature costs about 100 µs and every request of a component brings the same one. The oldest goes first. */
const verifiedMax = 1000;

/** What the token service needs. */
export interface ServiceAccountTokenOptions {
  readonly reader: ObjectReader;
  readonly clock: { nowMs(): number };
  /** PEM of the signing key (ECDSA P-256) and its id. */
  readonly privateKeyPem: string;
  readonly keyId: string;
  /** `iss` of every token, and the base of the discovery documents. */
  readonly issuer: string;
  /** The audiences of a token whose request names none; the API server accepts only tokens for one of these. */
  readonly apiAudiences: readonly string[];
}

interface ObjectClaim {
  readonly name: string;
  readonly uid: string;
}

interface KubernetesClaims {
  readonly namespace: string;
  readonly serviceaccount: ObjectClaim;
  readonly pod?: ObjectClaim;
  readonly secret?: ObjectClaim;
  readonly node?: ObjectClaim;
}

/** Who a token speaks for and for whom it was made. */
export interface TokenIdentity {
  readonly user: UserInfo;
  readonly audiences: readonly string[];
}

/** Signs and checks ServiceAccount tokens. Invariant: a token dies with its ServiceAccount and with the object it is bound to. */
export class ServiceAccountTokens implements TokenIssuer {
  readonly #options: ServiceAccountTokenOptions;
  readonly #privateKey: KeyObject;
  readonly #publicKey: KeyObject;
  readonly #verified = new Map<string, JWTPayload>();

  constructor(options: ServiceAccountTokenOptions) {
    this.#options = options;
    this.#privateKey = createPrivateKey(options.privateKeyPem);
    this.#publicKey = createPublicKey(this.#privateKey);
  }

  async issue(serviceAccount: ServiceAccount, spec: TokenRequestSpec): Promise<IssuedToken> {
    const { namespace = "", name, uid = "" } = serviceAccount.metadata;
    const seconds = checkExpiration(spec.expirationSeconds ?? expirationDefaultSeconds);
    const audiences = (spec.audiences?.length ?? 0) === 0 ? this.#options.apiAudiences : (spec.audiences ?? []);
    const bound = spec.boundObjectRef === undefined ? {} : await this.#boundClaims(spec.boundObjectRef, serviceAccount);
    const issuedAt = Math.floor(this.#options.clock.nowMs() / 1000);
    const tokenId = randomUUID();
    const claims: KubernetesClaims = { namespace, ...bound, serviceaccount: { name, uid } };
    const token = await new SignJWT({ "kubernetes.io": claims })
      .setProtectedHeader({ alg: "ES256", kid: this.#options.keyId })
      .setIssuer(this.#options.issuer)
      .setSubject(`system:serviceaccount:${namespace}:${name}`)
      .setAudience([...audiences])
      .setIssuedAt(issuedAt)
      .setNotBefore(issuedAt)
      .setExpirationTime(issuedAt + seconds)
      .setJti(tokenId)
      .sign(this.#privateKey);
    return {
      token,
      tokenId,
      expirationTimestamp: formatTimestamp((issuedAt + seconds) * 1000),
      spec: {
        audiences,
        expirationSeconds: seconds,
        ...(spec.boundObjectRef === undefined ? {} : { boundObjectRef: spec.boundObjectRef }),
      },
    };
  }

  async #boundClaims(
    reference: BoundObjectReference,
    serviceAccount: ServiceAccount,
  ): Promise<Partial<KubernetesClaims>> {
    const { kind = "", name = "" } = reference;
    const key = { namespace: serviceAccount.metadata.namespace ?? "", name };
    if (kind === "Pod") {
      const pod = await this.#options.reader.get(pods, key);
      const claim = boundClaim("pods", reference, pod?.metadata.uid);
      if (pod?.spec?.serviceAccountName !== serviceAccount.metadata.name) {
        throw invalidSpec(
          "boundObjectRef",
          `cannot bind token for serviceaccount "${serviceAccount.metadata.name}" to pod running with different serviceaccount name.`,
        );
      }
      const node = await this.#nodeClaim(pod.spec.nodeName);
      return { ...node, pod: claim };
    }
    if (kind === "Secret") {
      return { secret: boundClaim("secrets", reference, (await this.#options.reader.get(secrets, key))?.metadata.uid) };
    }
    if (kind === "Node") {
      return { node: boundClaim("nodes", reference, (await this.#options.reader.get(nodes, { name }))?.metadata.uid) };
    }
    throw badRequest(`cannot bind token to object of type ${goKind(reference.apiVersion ?? "v1", kind)}`);
  }

  async #nodeClaim(nodeName: string | undefined): Promise<Partial<KubernetesClaims>> {
    if (nodeName === undefined || nodeName === "") return {};
    const uid = (await this.#options.reader.get(nodes, { name: nodeName }))?.metadata.uid;
    return uid === undefined ? {} : { node: { name: nodeName, uid } };
  }

  /** Checks signature, time, issuer, one of the audiences, and that everything the token hangs on is still there. */
  async verify(token: string, audiences = this.#options.apiAudiences): Promise<TokenIdentity | undefined> {
    const payload = await this.#payloadOf(token);
    const claims = payload?.["kubernetes.io"] as KubernetesClaims | undefined;
    if (payload === undefined || claims === undefined) return undefined;
    const nowSeconds = this.#options.clock.nowMs() / 1000;
    if ((payload.exp ?? 0) <= nowSeconds || (payload.nbf ?? 0) > nowSeconds + 1) return undefined;
    const shared = [payload.aud ?? []].flat().filter((audience) => audiences.includes(audience));
    if (shared.length === 0 || !(await this.#isAlive(claims))) return undefined;
    return { user: userOf(claims, payload.jti), audiences: shared };
  }

  async #payloadOf(token: string): Promise<JWTPayload | undefined> {
    const digest = createHash("sha256").update(token).digest("base64");
    const known = this.#verified.get(digest);
    if (known !== undefined) return known;
    try {
      const { payload } = await jwtVerify(token, this.#publicKey, {
        issuer: this.#options.issuer,
        algorithms: ["ES256"],
        currentDate: new Date(this.#options.clock.nowMs()),
      });
      this.#remember(digest, payload);
      return payload;
    } catch (error) {
      // A token that does not verify is not an error of ours; jose gives each way to fail its own code.
      if (isJoseError(error)) return undefined;
      throw error;
    }
  }

  #remember(digest: string, payload: JWTPayload): void {
    const oldest = this.#verified.keys().next().value;
    if (this.#verified.size >= verifiedMax && oldest !== undefined) this.#verified.delete(oldest);
    this.#verified.set(digest, payload);
  }

  async #isAlive({ namespace, serviceaccount, pod, secret, node }: KubernetesClaims): Promise<boolean> {
    const { reader } = this.#options;
    const account = await reader.get(serviceAccounts, { namespace, name: serviceaccount.name });
    if (account?.metadata.uid !== serviceaccount.uid || account.metadata.deletionTimestamp !== undefined) return false;
    if (pod !== undefined && (await reader.get(pods, { namespace, name: pod.name }))?.metadata.uid !== pod.uid)
      return false;
    if (secret !== undefined)
      return (await reader.get(secrets, { namespace, name: secret.name }))?.metadata.uid === secret.uid;
    // A node claim beside a pod only informs; alone it is what the token is bound to.
    if (node !== undefined && pod === undefined)
      return (await reader.get(nodes, { name: node.name }))?.metadata.uid === node.uid;
    return true;
  }

  /** The body of `/.well-known/openid-configuration`. */
  discoveryDocument(): Record<string, unknown> {
    return {
      issuer: this.#options.issuer,
      jwks_uri: `${this.#options.issuer}/openid/v1/jwks`,
      response_types_supported: ["id_token"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["ES256"],
    };
  }

  /** The body of `/openid/v1/jwks`. */
  async keySet(): Promise<{ keys: unknown[] }> {
    return { keys: [{ use: "sig", ...(await exportJWK(this.#publicKey)), kid: this.#options.keyId, alg: "ES256" }] };
  }
}

function checkExpiration(seconds: number): number {
  if (seconds < expirationMinSeconds)
    throw invalidSpec("expirationSeconds", "may not specify a duration less than 10 minutes", seconds);
  if (seconds > expirationMaxSeconds)
    throw invalidSpec("expirationSeconds", "may not specify a duration larger than 2^32 seconds", seconds);
  return seconds;
}

/** A kind as Go prints it: `/v1, Kind=ConfigMap`. */
function goKind(apiVersion: string, kind: string): string {
  return `${apiVersion.includes("/") ? apiVersion : `/${apiVersion}`}, Kind=${kind}`;
}

function invalidSpec(field: string, why: string, value?: number): Error {
  const message = value === undefined ? `Invalid value: ${why}` : `Invalid value: ${value}: ${why}`;
  return invalid({ group: "authentication.k8s.io", kind: "TokenRequest", name: "" }, [
    { reason: "FieldValueInvalid", message, field: `spec.${field}` },
  ]);
}

function boundClaim(resource: string, reference: BoundObjectReference, uid: string | undefined): ObjectClaim {
  const name = reference.name ?? "";
  if (uid === undefined) throw notFound({ resource, name });
  if (reference.uid !== undefined && reference.uid !== "" && reference.uid !== uid) {
    throw conflict(
      { resource, name },
      `the UID in the bound object reference (${reference.uid}) does not match the UID in record. The object might have been deleted and then recreated`,
    );
  }
  return { name, uid };
}

function userOf({ namespace, serviceaccount, pod, node }: KubernetesClaims, tokenId: string | undefined): UserInfo {
  const extra: Record<string, readonly string[]> = {};
  if (tokenId !== undefined) extra["authentication.kubernetes.io/credential-id"] = [`JTI=${tokenId}`];
  if (pod !== undefined) {
    extra["authentication.kubernetes.io/pod-name"] = [pod.name];
    extra["authentication.kubernetes.io/pod-uid"] = [pod.uid];
  }
  if (node !== undefined) {
    extra["authentication.kubernetes.io/node-name"] = [node.name];
    extra["authentication.kubernetes.io/node-uid"] = [node.uid];
  }
  return { ...serviceAccountUser(namespace, serviceaccount.name), uid: serviceaccount.uid, extra };
}

/** The user that a ServiceAccount acts as. */
export function serviceAccountUser(namespace: string, name: string): UserInfo {
  return {
    username: `system:serviceaccount:${namespace}:${name}`,
    groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
  };
}

function isJoseError(error: unknown): boolean {
  return error instanceof Error && "code" in error && String(error.code).startsWith("ERR_J");
}
