import { createHash } from "node:crypto";
import { coreGroup } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { User } from "./caller.ts";

/** How the API server answers the two questions of access: who is this, and may he? */
export interface Reviewer {
  /** The user a token belongs to, or undefined. */
  authenticate(token: string): Promise<User | undefined>;
  /** Whether a user may connect to a sandbox. */
  mayConnect(user: User, namespace: string, name: string): Promise<boolean>;
}

/** What a reviewer works with. */
export interface ReviewerOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly audiences?: readonly string[];
  /** How long a yes is believed: also how long a revoked right still works. Default 30 s. */
  readonly ttlMs?: number;
  /** How many answers are kept; the oldest go first. Default 2048 of each kind. */
  readonly entriesMax?: number;
}

// A no is asked again soon, because the usual next step is that an administrator grants the right. A failure is asked again at
// once-a-second pace, so that a broken API server is not flooded.
const negativeTtlMs = 5_000;

/** Asks the API server by TokenReview and SubjectAccessReview, remembering answers; callers at the same time share one question. */
export class ApiReviewer implements Reviewer {
  readonly #client: Client;
  readonly #audiences: readonly string[];
  readonly #users: AnswerCache<User | undefined>;
  readonly #rights: AnswerCache<boolean>;

  constructor({ client, clock, audiences = [], ttlMs = 30_000, entriesMax = 2048 }: ReviewerOptions) {
    this.#client = client;
    this.#audiences = audiences;
    this.#users = new AnswerCache({ clock, ttlMs, entriesMax, isYes: (user) => user !== undefined });
    this.#rights = new AnswerCache({ clock, ttlMs, entriesMax, isYes: (allowed) => allowed });
  }

  authenticate(token: string): Promise<User | undefined> {
    // Tokens are kept as hashes: a dump of this process's memory map must not hand out credentials it no longer needs.
    const key = createHash("sha256").update(token).digest("base64");
    return this.#users.get(key, async () => {
      const review = await this.#client.raw<TokenReview>({
        method: "POST",
        path: "/apis/authentication.k8s.io/v1/tokenreviews",
        body: {
          apiVersion: "authentication.k8s.io/v1",
          kind: "TokenReview",
          spec: { token, ...(this.#audiences.length > 0 && { audiences: this.#audiences }) },
        },
      });
      const user = review.status?.user;
      if (review.status?.authenticated !== true || user === undefined) return undefined;
      return { ...user, groups: user.groups ?? [] };
    });
  }

  mayConnect(user: User, namespace: string, name: string): Promise<boolean> {
    const key = JSON.stringify([user.username, user.uid, user.groups, user.extra, namespace, name]);
    return this.#rights.get(key, async () => {
      const review = await this.#client.raw<{ status?: { allowed?: boolean; denied?: boolean } }>({
        method: "POST",
        path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        body: {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SubjectAccessReview",
          spec: {
            user: user.username,
            groups: user.groups,
            ...(user.uid !== undefined && { uid: user.uid }),
            ...(user.extra !== undefined && { extra: user.extra }),
            resourceAttributes: {
              group: coreGroup,
              resource: "sandboxes",
              subresource: "connect",
              verb: "create",
              namespace,
              name,
            },
          },
        },
      });
      return review.status?.allowed === true && review.status.denied !== true;
    });
  }
}

interface TokenReview {
  readonly status?: {
    readonly authenticated?: boolean;
    readonly user?: Omit<User, "groups"> & { readonly groups?: readonly string[] };
  };
}

interface AnswerCacheOptions<T> {
  readonly clock: Clock;
  readonly ttlMs: number;
  readonly entriesMax: number;
  readonly isYes: (answer: T) => boolean;
}

/** Answers by key, bounded; a failed question is not kept, only shared by those who asked at the same time. */
class AnswerCache<T> {
  readonly #options: AnswerCacheOptions<T>;
  readonly #answers = new Map<string, { readonly answer: Promise<T>; untilMs: number }>();

  constructor(options: AnswerCacheOptions<T>) {
    this.#options = options;
  }

  get(key: string, ask: () => Promise<T>): Promise<T> {
    const { clock, ttlMs, entriesMax, isYes } = this.#options;
    const known = this.#answers.get(key);
    if (known !== undefined && clock.nowMs() < known.untilMs) return known.answer;
    const entry = { answer: ask(), untilMs: Number.POSITIVE_INFINITY };
    entry.answer.then(
      (answer) => {
        entry.untilMs = clock.nowMs() + (isYes(answer) ? ttlMs : Math.min(ttlMs, negativeTtlMs));
      },
      () => {
        if (this.#answers.get(key) === entry) this.#answers.delete(key);
      },
    );
    this.#answers.delete(key);
    this.#answers.set(key, entry);
    if (this.#answers.size > entriesMax) this.#answers.delete(this.#answers.keys().next().value as string);
    return entry.answer;
  }
}
