import type { PodSnapshot, PodSnapshotPolicy, Sandbox, SandboxSnapshot } from "@agent-sandbox/api";
import {
  annotationKeys,
  isConditionTrue,
  labelKeys,
  labelSelectorOf,
  matchesLabels,
  nameHash,
} from "@agent-sandbox/api";

/** Everything a pass over the policies of a Sandbox looks at. */
export interface PolicyObserved {
  readonly sandbox: Sandbox;
  /** Of its namespace. */
  readonly policies: readonly PodSnapshotPolicy[];
  /** Those that name the Sandbox, each with what it stands for. */
  readonly snapshots: readonly { readonly snapshot: PodSnapshot; readonly saved: SandboxSnapshot | undefined }[];
}

/** What a pass decides. */
export interface PolicyPlan {
  /** What the Sandbox's annotation becomes: a name, null where it goes; undefined where it stays. */
  readonly restartFrom?: string | null;
  /** Uids and names of those beyond the number that is kept. */
  readonly deleted: readonly { readonly name: string; readonly uid: string }[];
}

/** Decides which snapshot a Sandbox wakes from, and which ones go. */
export function planPolicy({ sandbox, policies, snapshots }: PolicyObserved): PolicyPlan {
  const selecting = policies.filter((policy) => selects(policy, sandbox));
  const ready = snapshots
    .filter(({ saved }) => saved?.status?.sandboxUID === sandbox.metadata.uid)
    .map(({ snapshot }) => snapshot)
    .filter(
      ({ metadata, status }) =>
        metadata.deletionTimestamp === undefined && isConditionTrue(status?.conditions, "Ready"),
    )
    .toSorted(newestFirst);
  const max = Math.min(...selecting.map(keptMax));
  const [latest] = selecting.length === 0 ? [] : ready;
  const wanted = latest === undefined ? null : latest.metadata.name;
  const present = sandbox.metadata.annotations?.[annotationKeys.restartFrom] ?? null;
  // Without a policy, what a user has written stays.
  const isOurs = selecting.length > 0 || snapshots.some(({ snapshot }) => snapshot.metadata.name === present);
  return {
    ...(isOurs && wanted !== present && { restartFrom: wanted }),
    deleted: ready.slice(max).map(({ metadata: { name, uid = "" } }) => ({ name, uid })),
  };
}

function keptMax({ spec }: PodSnapshotPolicy): number {
  const { groupRetentionPolicy } = spec.snapshotGroupingRules?.groupByLabelValue ?? {};
  return groupRetentionPolicy?.maxSnapshotCountPerGroup ?? Number.POSITIVE_INFINITY;
}

/** As the published client sorts: by the second of creation, and those of one second by name. */
function newestFirst(a: PodSnapshot, b: PodSnapshot): number {
  const [born, other] = [a.metadata.creationTimestamp ?? "", b.metadata.creationTimestamp ?? ""];
  return other.localeCompare(born) || a.metadata.name.localeCompare(b.metadata.name);
}

function selects(
  { metadata, spec }: PodSnapshotPolicy,
  { spec: { podTemplate }, metadata: { name } }: Sandbox,
): boolean {
  if (metadata.deletionTimestamp !== undefined) return false;
  const labels = { ...podTemplate.metadata?.labels, [labelKeys.sandboxNameHash]: nameHash(name) };
  return matchesLabels(labelSelectorOf(spec.selector), labels);
}
