import { timingSafeEqual } from "node:crypto";
import type { Clock } from "@agent-sandbox/kube";
import type { Target } from "../addressing/target.ts";
import { RoutingError } from "../routing-error.ts";
import type { Credentials, ListenerTrust, User } from "./caller.ts";
import type { Reviewer } from "./reviewer.ts";
import { type FindUid, type ScopedTokenKeys, type TokenScope, tryVerifyScopedToken } from "./scoped-token.ts";

/**
 * How callers are judged. `access-review`: a known user with the right to connect. `tokenreview`: any known user, as
 * the reference does. `scoped-token`: only tokens made for that sandbox. `allow-all`: no credential is asked for.
 */
export type AccessMode = "access-review" | "tokenreview" | "scoped-token" | "allow-all";

/** What the gate judges with. */
export interface GateOptions {
  readonly mode: AccessMode;
  readonly clock: Clock;
  readonly reviewer?: Reviewer;
  readonly scopedTokenKeys?: ScopedTokenKeys;
  /** The uid of the sandbox that has a name now, for tokens whose signature covers it. */
  readonly uidOf: FindUid;
  /** A bearer token that opens everything, as the older router had it. */
  readonly staticToken?: string;
  /** With `tokenreview`: callers without a token pass, as with the reference's default. */
  readonly allowTokenless?: boolean;
  /** What the listener for callers without credentials may reach. Absent: all namespaces. */
  readonly insecureNamespaces?: readonly string[];
  /** On a cluster a tunnel has no known opener; loopback callers without credentials may reach these. Absent: none. */
  readonly tunnelNamespaces?: readonly string[];
}

/** Decides whether a request may reach its target. */
export class Gate {
  readonly #options: GateOptions;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /**
   * Returns, or resolves, when the caller may pass; throws RoutingError 401 or 403. The scope is that of the token the
   * caller came with, if it was one: whether its `uid` is the sandbox's is for the caller of this method to see.
   */
  admit(target: Target, credentials: Credentials, trust: ListenerTrust): TokenScope | undefined | Promise<undefined> {
    const { mode, insecureNamespaces, staticToken } = this.#options;
    // A token that was configured is asked for in every mode.
    if (mode === "allow-all" && staticToken === undefined) return undefined;
    if (trust.kind === "insecure") {
      if (insecureNamespaces === undefined || insecureNamespaces.includes(target.namespace)) return undefined;
      throw forbidden();
    }
    if (trust.kind === "tunnel") return this.#admitUser(trust.user, target);
    if (trust.kind === "loopback" && isEmpty(credentials)) return this.#admitLoopback(target);
    const scope = this.#scopeOf(credentials);
    if (scope !== undefined) {
      assertInScope(scope, target, credentials.method);
      return scope;
    }
    if (credentials.certificateUser !== undefined && mode !== "scoped-token")
      return this.#admitUser(credentials.certificateUser, target);
    return this.#admitBearer(credentials.bearer, target);
  }

  /** When what was presented ends, for a session that could outlive it; undefined where the API server would have to be asked. */
  expiryMs(credentials: Credentials, trust: ListenerTrust): number | undefined {
    if (trust.kind === "insecure" || trust.kind === "tunnel" || this.#options.mode === "allow-all") return undefined;
    const scope = this.#scopeOf(credentials);
    return scope === undefined ? undefined : scope.expiresAtSeconds * 1000;
  }

  /** What was tunnelled to this Pod by a cluster's own port-forward, which does not say who its user is. */
  #admitLoopback(target: Target): undefined {
    const { tunnelNamespaces = [] } = this.#options;
    if (!tunnelNamespaces.includes(target.namespace)) throw unauthenticated();
  }

  #scopeOf({ bearer, linkToken }: Credentials): TokenScope | undefined {
    const { scopedTokenKeys, clock, uidOf } = this.#options;
    if (scopedTokenKeys === undefined) return undefined;
    const token = bearer !== undefined && /^v[123]\./.test(bearer) ? bearer : linkToken;
    if (token === undefined) return undefined;
    const scope = tryVerifyScopedToken(token, { keys: scopedTokenKeys, nowMs: clock.nowMs(), uidOf });
    if (scope === undefined) throw unauthenticated();
    return scope;
  }

  #admitBearer(bearer: string | undefined, target: Target): undefined | Promise<undefined> {
    const { mode, reviewer, staticToken, allowTokenless } = this.#options;
    if (bearer !== undefined && staticToken !== undefined && isSameToken(bearer, staticToken)) return undefined;
    if (mode === "scoped-token" || mode === "allow-all" || reviewer === undefined) throw unauthenticated();
    if (bearer === undefined) {
      if (mode === "tokenreview" && allowTokenless === true) return undefined;
      throw unauthenticated();
    }
    return this.#review(bearer, target, reviewer);
  }

  async #review(bearer: string, target: Target, reviewer: Reviewer): Promise<undefined> {
    const user = await reviewer.authenticate(bearer).catch(undecided);
    if (user === undefined) throw unauthenticated();
    if (this.#options.mode === "access-review") await this.#admitUser(user, target);
  }

  async #admitUser(user: User, target: Target): Promise<undefined> {
    const { mode, reviewer } = this.#options;
    if (mode === "tokenreview") return undefined;
    if (reviewer === undefined) throw forbidden();
    if (!(await reviewer.mayConnect(user, target.namespace, target.name).catch(undecided))) throw forbidden();
  }
}

function isEmpty({ bearer, certificateUser, linkToken }: Credentials): boolean {
  return bearer === undefined && certificateUser === undefined && linkToken === undefined;
}

function assertInScope(scope: TokenScope, target: Target, method: string | undefined): void {
  const isSame = scope.namespace === target.namespace && scope.name === target.name;
  const isPort = scope.port === undefined || scope.port === target.port;
  const isIncarnation = scope.uid === undefined || target.uid === undefined || scope.uid === target.uid;
  const isMethod = scope.methods === undefined || (method !== undefined && scope.methods.includes(method));
  if (!isSame || !isPort || !isIncarnation || !isMethod) throw forbidden();
}

function isSameToken(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

function unauthenticated(): RoutingError {
  return new RoutingError(401, "unauthenticated");
}

function forbidden(): RoutingError {
  return new RoutingError(403, "forbidden");
}

/** The API server could not be asked: refuse, and keep its words for the log. */
function undecided(cause: unknown): never {
  throw new RoutingError(503, "authorisation is not available", { retryAfterSeconds: 1, cause });
}
