import type {
  KubeObject,
  LocalSubjectAccessReview,
  PolicyRule,
  SelfSubjectAccessReview,
  SelfSubjectReview,
  SelfSubjectRulesReview,
  SubjectAccessReview,
  SubjectAccessReviewSpec,
  TokenReview,
} from "@agent-sandbox/api";
import { ApiError, badRequest, invalid } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import type { AuthorizationAttributes } from "./authorizer.ts";
import type { EngineAuthenticator } from "./engine-authenticator.ts";
import type { RbacAuthorizer } from "./rbac-authorizer.ts";

type AccessSpec = Pick<SubjectAccessReviewSpec, "resourceAttributes" | "nonResourceAttributes">;

/** Answers the kinds that are questions: created, answered, never stored. */
export class Reviews {
  readonly #authenticator: EngineAuthenticator;
  readonly #authorizer: RbacAuthorizer;

  constructor(authenticator: EngineAuthenticator, authorizer: RbacAuthorizer) {
    this.#authenticator = authenticator;
    this.#authorizer = authorizer;
  }

  /** Returns the object with its status filled in. `resource` is the plural; `namespace` is empty for cluster-scoped kinds. */
  async answer(
    resource: string,
    object: KubeObject,
    asked: { user: UserInfo; namespace: string },
  ): Promise<KubeObject> {
    if (resource === "selfsubjectreviews") return selfSubjectReview(object as SelfSubjectReview, asked.user);
    const review = withSpec(object);
    switch (resource) {
      case "tokenreviews":
        return this.#tokenReview(review as TokenReview);
      case "selfsubjectaccessreviews":
        return this.#accessReview(review as SelfSubjectAccessReview, asked.user);
      case "subjectaccessreviews":
        return this.#subjectAccessReview(review as SubjectAccessReview);
      case "localsubjectaccessreviews":
        return this.#localSubjectAccessReview(review as LocalSubjectAccessReview, asked.namespace);
      case "selfsubjectrulesreviews":
        return this.#rulesReview(review as SelfSubjectRulesReview, asked.user);
      default:
        throw new Error(`${resource} is not a review`);
    }
  }

  async #tokenReview(review: TokenReview): Promise<TokenReview> {
    const { token, audiences } = review.spec;
    if (token === undefined || token === "") throw badRequest("token is required for TokenReview in authentication");
    const found = await this.#authenticator.review(token, (audiences?.length ?? 0) === 0 ? undefined : audiences);
    if (found === undefined)
      return { ...review, status: { authenticated: false, error: "invalid bearer token", user: {} } };
    return { ...review, status: { authenticated: true, user: wireUser(found.user), audiences: [...found.audiences] } };
  }

  #accessReview<T extends { spec: AccessSpec; kind: string }>(review: T, user: UserInfo): T {
    const decision = this.#authorizer.authorize(attributesOf(review), user);
    const reason = decision.reason === "" ? {} : { reason: decision.reason };
    return { ...review, status: { allowed: decision.verdict === "allow", ...reason } };
  }

  #subjectAccessReview<T extends SubjectAccessReview | LocalSubjectAccessReview>(review: T): T {
    const { user: username = "", groups = [], uid, extra } = review.spec;
    if (username === "" && groups.length === 0) {
      throw invalidReview(
        review.kind,
        "spec.user",
        `Invalid value: "": at least one of user or group must be specified`,
      );
    }
    const user: UserInfo = {
      username,
      groups,
      ...(uid === undefined ? {} : { uid }),
      ...(extra === undefined ? {} : { extra }),
    };
    return this.#accessReview(review, user);
  }

  #localSubjectAccessReview(review: LocalSubjectAccessReview, namespace: string): LocalSubjectAccessReview {
    const asked = review.spec.resourceAttributes?.namespace;
    if (review.spec.resourceAttributes === undefined || review.spec.nonResourceAttributes !== undefined) {
      throw invalidReview(
        review.kind,
        "spec.nonResourceAttributes",
        "Invalid value: disallowed on this kind of request",
      );
    }
    if (asked !== namespace) {
      const field = "spec.resourceAttributes.namespace";
      const message = `Invalid value: ${JSON.stringify(asked ?? "")}: must match metadata.namespace`;
      throw invalidReview("", field, message);
    }
    return this.#subjectAccessReview(review);
  }

  #rulesReview(review: SelfSubjectRulesReview, user: UserInfo): SelfSubjectRulesReview {
    const namespace = review.spec.namespace ?? "";
    if (namespace === "") throw badRequest("no namespace on request");
    const rules = this.#authorizer.rulesFor(user, namespace);
    return {
      ...review,
      status: { incomplete: false, resourceRules: resourceRules(rules), nonResourceRules: pathRules(rules) },
    };
  }
}

/** The plurals that `Reviews.answer` takes, with their groups. */
export const reviewResources: ReadonlyMap<string, string> = new Map([
  ["tokenreviews", "authentication.k8s.io"],
  ["selfsubjectreviews", "authentication.k8s.io"],
  ["selfsubjectaccessreviews", "authorization.k8s.io"],
  ["subjectaccessreviews", "authorization.k8s.io"],
  ["localsubjectaccessreviews", "authorization.k8s.io"],
  ["selfsubjectrulesreviews", "authorization.k8s.io"],
]);

/** A question without a spec asks nothing, which each kind refuses in its own words. */
function withSpec(object: KubeObject): KubeObject {
  const { spec } = object as KubeObject & { spec?: unknown };
  if (spec !== undefined && spec !== null && (typeof spec !== "object" || Array.isArray(spec)))
    throw badRequest("spec must be an object");
  return { ...object, spec: spec ?? {} } as KubeObject;
}

function selfSubjectReview(review: SelfSubjectReview, user: UserInfo): SelfSubjectReview {
  return { ...review, status: { userInfo: wireUser(user) } };
}

function wireUser(user: UserInfo): {
  username: string;
  groups: string[];
  uid?: string;
  extra?: Record<string, string[]>;
} {
  const extra = Object.entries(user.extra ?? {}).map(([key, values]): [string, string[]] => [key, [...values]]);
  return {
    username: user.username,
    groups: [...user.groups],
    ...(user.uid === undefined ? {} : { uid: user.uid }),
    ...(extra.length === 0 ? {} : { extra: Object.fromEntries(extra) }),
  };
}

function attributesOf(review: { spec: AccessSpec; kind: string }): AuthorizationAttributes {
  const { resourceAttributes: resource, nonResourceAttributes: path } = review.spec;
  if ((resource === undefined) === (path === undefined)) {
    const message = `Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified`;
    throw invalidReview(review.kind, "spec.resourceAttributes", message);
  }
  if (resource === undefined) return { kind: "non-resource", verb: path?.verb ?? "", path: path?.path ?? "" };
  return {
    kind: "resource",
    verb: resource.verb ?? "",
    group: resource.group ?? "",
    version: resource.version ?? "",
    resource: resource.resource ?? "",
    subresource: resource.subresource ?? "",
    namespace: resource.namespace ?? "",
    name: resource.name ?? "",
  };
}

function invalidReview(kind: string, field: string, message: string): Error {
  const error = invalid({ group: "authorization.k8s.io", kind, name: "" }, [
    { reason: "FieldValueInvalid", message, field },
  ]);
  if (kind !== "" || error.details === undefined) return error;
  // Where Kubernetes forgot to name the kind, the details have none.
  const { kind: _kind, ...details } = error.details;
  return new ApiError("Invalid", error.message, { details });
}

function resourceRules(rules: readonly PolicyRule[]) {
  return rules
    .filter((rule) => (rule.resources?.length ?? 0) > 0)
    .map(({ verbs, apiGroups = [], resources = [], resourceNames }) => ({
      verbs,
      apiGroups,
      resources,
      ...(resourceNames === undefined ? {} : { resourceNames }),
    }));
}

function pathRules(rules: readonly PolicyRule[]) {
  return rules
    .filter((rule) => (rule.nonResourceURLs?.length ?? 0) > 0)
    .map(({ verbs, nonResourceURLs = [] }) => ({ verbs, nonResourceURLs }));
}
