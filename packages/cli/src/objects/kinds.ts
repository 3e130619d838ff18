import type { KubeObject } from "@agent-sandbox/api/meta";
import * as resources from "@agent-sandbox/api/resource";
import { didYouMean } from "@agent-sandbox/sdk/errors/did-you-mean";
import { usageError } from "../cli-error.ts";
import { aliasKinds } from "./aliases.ts";
import { type Column, columnsOf } from "./columns.ts";

/** A kind that verbs take, with the words for it. */
export interface Kind {
  readonly resource: resources.Resource<KubeObject>;
  /** What users may write, besides the plural, the singular and the kind. */
  readonly aliases: readonly string[];
  readonly columns: readonly Column[];
}

type AnyResource = resources.Resource<KubeObject>;

/** Kinds with their short words, ours first. */
const shortWords: readonly (readonly [AnyResource, ...string[]])[] = [
  [resources.sandboxes as AnyResource, "sb", "box", "boxes"],
  [resources.sandboxClaims as AnyResource, "claim", "claims"],
  [resources.sandboxWarmPools as AnyResource, "pool", "pools", "warmpool", "warmpools"],
  [resources.sandboxTemplates as AnyResource, "template", "templates"],
  [resources.sandboxSnapshots as AnyResource, "snapshot", "snapshots"],
  [resources.sandboxArchives as AnyResource, "archive", "archives"],
  [resources.pods as AnyResource, "po"],
  [resources.events as AnyResource, "ev"],
  [resources.nodes as AnyResource, "no"],
  [resources.namespaces as AnyResource, "ns"],
  [resources.persistentVolumeClaims as AnyResource, "pvc"],
  [resources.persistentVolumes as AnyResource, "pv"],
  [resources.services as AnyResource, "svc"],
  [resources.secrets as AnyResource],
  [resources.configMaps as AnyResource, "cm"],
  [resources.serviceAccounts as AnyResource, "sa"],
  [resources.networkPolicies as AnyResource, "netpol"],
  [resources.resourceQuotas as AnyResource, "quota"],
  [resources.limitRanges as AnyResource, "limits"],
  [resources.runtimeClasses as AnyResource],
  [resources.storageClasses as AnyResource, "sc"],
  [resources.roles as AnyResource],
  [resources.roleBindings as AnyResource],
  [resources.clusterRoles as AnyResource],
  [resources.clusterRoleBindings as AnyResource],
  [resources.leases as AnyResource],
  [resources.endpointSlices as AnyResource],
  [resources.customResourceDefinitions as AnyResource, "crd", "crds"],
];

const kinds: readonly Kind[] = shortWords.map(([resource, ...aliases]) => ({
  resource,
  aliases,
  columns: columnsOf(resource.kind),
}));

/** The kind Sandbox. */
export const sandboxKind: Kind = kinds[0] as Kind;

/** The kind for a word, or undefined. */
export function tryKind(word: string): Kind | undefined {
  const lower = word.toLowerCase().split(".")[0] ?? "";
  return kinds.find(({ resource, aliases }) => wordsOf(resource, aliases).includes(lower));
}

/** The kind for a word; a usage error that guesses where there is none. */
export function kindOf(word: string): Kind {
  const kind = tryKind(word);
  if (kind !== undefined) return kind;
  throw usageError(
    `no such kind '${word}'${didYouMean(word, kindWords())}`,
    `Kinds: ${kinds.map((one) => one.resource.resource).join(", ")}`,
  );
}

/** Every word for a kind. */
export function kindWords(): string[] {
  return kinds.flatMap(({ resource, aliases }) => wordsOf(resource, aliases));
}

/** The kind that an object says it is, or undefined. */
export function kindOfObject({ apiVersion, kind }: Pick<KubeObject, "apiVersion" | "kind">): Kind | undefined {
  const { group } = resources.parseApiVersion(apiVersion);
  // Not among the kinds that words name: a word means the real kind.
  const printed = aliasKinds.map((resource) => ({ resource, aliases: [], columns: [] }));
  return [...kinds, ...printed].find(({ resource }) => resource.kind === kind && resource.group === group);
}

function wordsOf({ resource, kind }: AnyResource, aliases: readonly string[]): string[] {
  return [resource, kind.toLowerCase(), ...aliases];
}
