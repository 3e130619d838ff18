import { apiVersionOf, pods } from "@agent-sandbox/api";
import { AddressAllocation } from "./admission/address-allocation.ts";
import { parseAddressPlan } from "./admission/address-pool.ts";
import type { Admission } from "./admission/admission.ts";
import { defaultAdmission } from "./admission/default-admission.ts";
import type { OwnerKinds } from "./admission/owner-references.ts";
import { EngineAuthenticator, type StaticToken } from "./auth/engine-authenticator.ts";
import { NodeReads } from "./auth/node-reads.ts";
import { followRbac, RbacAuthorizer } from "./auth/rbac-authorizer.ts";
import { RbacIndex } from "./auth/rbac-index.ts";
import { Reviews, reviewResources } from "./auth/reviews.ts";
import { ServiceAccountTokens } from "./auth/service-account-tokens.ts";
import { type ReadableParts, StorageReader } from "./auth/storage-reader.ts";
import { findVersion } from "./registry/resource-definition.ts";
import type { VirtualResource } from "./request/virtual-resource.ts";

/** What security needs from outside. */
export interface SecurityOptions {
  readonly clock: { nowMs(): number };
  /** In [0, 1), for generated names. */
  readonly random: () => number;
  /** PEM of the key that signs ServiceAccount tokens, and its id: `Pki.serviceAccountKey()`. */
  readonly serviceAccountKey: { readonly privateKeyPem: string; readonly keyId: string };
  /** `iss` of tokens; default `https://kubernetes.default.svc.cluster.local`. */
  readonly issuer?: string;
  readonly staticTokens?: readonly StaticToken[];
  /** The engine's /16, for example `10.200.0.0/16`; absent: no addresses are given. */
  readonly addresses?: string;
}

/** Everything the API server is made with, and what makes it live. */
export interface Security {
  readonly authenticator: EngineAuthenticator;
  readonly authorizer: RbacAuthorizer;
  readonly admission: readonly Admission[];
  readonly tokens: ServiceAccountTokens;
  readonly virtualResources: readonly VirtualResource[];
  readonly reader: StorageReader;
  /** Reads what is stored and follows it from then on; call it once, after the server is made and before it answers. */
  attach(parts: ReadableParts): Promise<AsyncDisposable & Disposable>;
}

/** Builds authentication, authorisation, admission and tokens over one reader. */
export function createSecurity(options: SecurityOptions): Security {
  const { clock, random, serviceAccountKey, issuer = "https://kubernetes.default.svc.cluster.local" } = options;
  const reader = new StorageReader();
  const index = new RbacIndex();
  const nodeReads = new NodeReads();
  const authorizer = new RbacAuthorizer(index, nodeReads);
  const tokens = new ServiceAccountTokens({ reader, clock, ...serviceAccountKey, issuer, apiAudiences: [issuer] });
  const authenticator = new EngineAuthenticator(tokens, options.staticTokens ?? []);
  const addresses =
    options.addresses === undefined
      ? undefined
      : new AddressAllocation(reader, clock, parseAddressPlan(options.addresses));
  let served: ReadableParts | undefined;
  const ownerKinds: OwnerKinds = (group, version, kind) => {
    const found = served?.registry.findByKind({ apiVersion: apiVersionOf({ group, version }), kind });
    if (found === undefined || findVersion(found, version)?.served !== true) return undefined;
    // Read as it is stored: what is asked of an owner is in its metadata, which every version shares.
    return { group, version: found.storageVersion, resource: found.resource, kind, namespaced: found.namespaced };
  };
  return {
    authenticator,
    authorizer,
    tokens,
    reader,
    admission: defaultAdmission({
      reader,
      writer: reader,
      authorizer,
      ownerKinds,
      random,
      ...(addresses === undefined ? {} : { addresses }),
    }),
    virtualResources: reviewKinds(new Reviews(authenticator, authorizer)),
    attach: async (parts) => {
      served = parts;
      reader.attach(parts);
      const following = [
        await followRbac(index, reader),
        await reader.subscribe(pods, ({ object, deleted }) => nodeReads.change(object, deleted)),
        ...(addresses === undefined ? [] : [await addresses.follow()]),
      ];
      const dispose = () => {
        for (const each of following) each[Symbol.dispose]();
      };
      return { [Symbol.dispose]: dispose, [Symbol.asyncDispose]: async () => dispose() };
    },
  };
}

const reviewKindNames: Readonly<Record<string, string>> = {
  tokenreviews: "TokenReview",
  selfsubjectreviews: "SelfSubjectReview",
  selfsubjectaccessreviews: "SelfSubjectAccessReview",
  subjectaccessreviews: "SubjectAccessReview",
  localsubjectaccessreviews: "LocalSubjectAccessReview",
  selfsubjectrulesreviews: "SelfSubjectRulesReview",
};

function reviewKinds(reviews: Reviews): VirtualResource[] {
  return [...reviewResources].map(([resource, group]) => ({
    group,
    version: "v1",
    resource,
    kind: reviewKindNames[resource] ?? "",
    namespaced: resource.startsWith("local"),
    create: (object, { user, namespace }) => reviews.answer(resource, object, { user, namespace }),
  }));
}
