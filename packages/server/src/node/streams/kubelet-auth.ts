import type { TLSSocket } from "node:tls";
import { type SubjectAccessReview, subjectAccessReviews, type TokenReview, tokenReviews } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";

/** Who calls the node. */
export interface Caller {
  readonly username: string;
  readonly uid?: string;
  readonly groups: readonly string[];
}

/** What the caller wants, in the words of a SubjectAccessReview on the node. */
export interface Access {
  readonly verb: "get" | "create";
  readonly subresource: "proxy" | "stats" | "metrics" | "log" | "healthz" | "pods";
}

/** How long an answer of the API server is believed; the kubelet's figures are minutes, ours is shorter. */
const cacheMs = 10_000;

/** Answers kept at most; the oldest leaves first. */
const cacheEntriesMax = 1024;

/** Asks the API server who callers are and what they may do. */
export class KubeletAuth {
  readonly #client: Client;
  readonly #clock: Clock;
  readonly #nodeName: string;
  readonly #cache = new Map<string, { readonly value: unknown; readonly untilMs: number }>();

  constructor({ client, clock, nodeName }: { client: Client; clock: Clock; nodeName: string }) {
    this.#client = client;
    this.#clock = clock;
    this.#nodeName = nodeName;
  }

  /** The caller behind a verified client certificate or a bearer token; undefined for every other. */
  async authenticate(socket: TLSSocket, authorization: string | undefined): Promise<Caller | undefined> {
    const certified = callerOfCertificate(socket);
    if (certified !== undefined) return certified;
    const token = /^Bearer (\S+)$/i.exec(authorization ?? "")?.[1];
    if (token === undefined) return undefined;
    return this.#cached(`token ${token}`, async () => {
      const review: TokenReview = {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenReview",
        metadata: { name: "" },
        spec: { token },
      };
      const { status } = await this.#client.create(tokenReviews, review);
      const { username, uid, groups } = status?.user ?? {};
      if (status?.authenticated !== true || username === undefined) return undefined;
      return { username, groups: groups ?? [], ...(uid !== undefined && { uid }) };
    });
  }

  async authorize(caller: Caller, { verb, subresource }: Access): Promise<boolean> {
    return this.#cached(`access ${JSON.stringify([caller, verb, subresource])}`, async () => {
      const review: SubjectAccessReview = {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        metadata: { name: "" },
        spec: {
          user: caller.username,
          groups: [...caller.groups],
          ...(caller.uid !== undefined && { uid: caller.uid }),
          resourceAttributes: { verb, version: "v1", resource: "nodes", subresource, name: this.#nodeName },
        },
      };
      return (await this.#client.create(subjectAccessReviews, review)).status?.allowed === true;
    });
  }

  async #cached<T>(key: string, ask: () => Promise<T>): Promise<T> {
    const nowMs = this.#clock.nowMs();
    const known = this.#cache.get(key);
    if (known !== undefined && known.untilMs > nowMs) return known.value as T;
    const value = await ask();
    if (this.#cache.size >= cacheEntriesMax) {
      const [oldest] = this.#cache.keys();
      if (oldest !== undefined) this.#cache.delete(oldest);
    }
    this.#cache.set(key, { value, untilMs: nowMs + cacheMs });
    return value;
  }
}

function callerOfCertificate(socket: TLSSocket): Caller | undefined {
  // A connection without TLS or with an unverified certificate has no `authorized`.
  if (socket.authorized !== true) return undefined;
  const subject = socket.getPeerCertificate().subject as { CN?: string; O?: string | string[] } | undefined;
  if (subject?.CN === undefined) return undefined;
  const groups = subject.O === undefined ? [] : Array.isArray(subject.O) ? subject.O : [subject.O];
  return { username: subject.CN, groups };
}
