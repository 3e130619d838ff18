/** What one writer did, as the server acknowledged it: the versions of every object by its uid. */
export type Acknowledged = ReadonlyMap<string, { readonly versions: readonly number[]; readonly isDeleted: boolean }>;

/** The events that one watcher got. */
export interface Watched {
  readonly kind: string;
  readonly resumed: number;
  readonly records: ReadonlyArray<{ readonly what: string; readonly uid: string; readonly version: string }>;
  /** Lists that took the place of events: versions after `from` and up to `to` may have been merged. */
  readonly gaps: ReadonlyArray<{ readonly from: string; readonly to: string }>;
  /** What it believes to exist at the end: versions by uid. */
  readonly stored: Readonly<Record<string, string>>;
}

/**
 * Every way in which a watcher was not told what happened: a version or a deletion that never came, one that came twice, out
 * of order or without having been written. Empty for a faithful one.
 */
export function deliveryFaults(written: Acknowledged, { records, gaps }: Watched): string[] {
  const faults: string[] = [];
  const told = Map.groupBy(records, ({ uid }) => uid);
  for (const [uid, object] of written) {
    const seen = told.get(uid) ?? [];
    const versions = seen.filter(({ what }) => what !== "deleted").map(({ version }) => Number(version));
    const isMerged = (version: number): boolean =>
      gaps.some(({ from, to }) => Number(from) < version && version <= Number(to));
    for (const [index, version] of versions.entries()) {
      if (!object.versions.includes(version)) faults.push(`${uid}: version ${version} was never written`);
      if (version <= (versions[index - 1] ?? 0)) faults.push(`${uid}: ${version} came after ${versions[index - 1]}`);
    }
    for (const version of object.versions)
      if (!versions.includes(version) && !isMerged(version)) faults.push(`${uid}: version ${version} is missing`);
    faults.push(...endFaults(uid, object, seen));
  }
  return faults;
}

/** An object must end as it ended: its deletion comes once and last, or its last version does. */
function endFaults(
  uid: string,
  { versions, isDeleted }: { readonly versions: readonly number[]; readonly isDeleted: boolean },
  seen: Watched["records"],
): string[] {
  const deletions = seen.filter(({ what }) => what === "deleted");
  const last = seen.at(-1);
  if (!isDeleted) {
    if (deletions.length > 0) return [`${uid}: was never deleted`];
    return Number(last?.version) === versions.at(-1)
      ? []
      : [`${uid}: ends at ${last?.version}, not ${versions.at(-1)}`];
  }
  // One that was made and deleted between two lists is rightly unknown.
  if (last === undefined) return [];
  if (deletions.length !== 1 || last.what !== "deleted") return [`${uid}: its deletion came ${deletions.length} times`];
  const isEarly = last.version !== "" && Number(last.version) <= (versions.at(-1) ?? 0);
  return isEarly ? [`${uid}: deleted at ${last.version}, before its last version`] : [];
}
