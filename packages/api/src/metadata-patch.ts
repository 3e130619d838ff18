/** The merge patch, as text, that sets these annotations and touches nothing else. */
export function annotationPatch(entries: Readonly<Record<string, string>>): string {
  return metadataPatch("annotations", entries);
}

/** The merge patch, as text, that sets these labels and touches nothing else. */
export function labelPatch(entries: Readonly<Record<string, string>>): string {
  return metadataPatch("labels", entries);
}

/** Keys sorted, no spaces, and escaped as Go's encoder does, so that the bytes equal those of a full diff. */
function metadataPatch(field: "annotations" | "labels", entries: Readonly<Record<string, string>>): string {
  const keys = Object.keys(entries).sort();
  if (keys.length === 0) throw new Error(`bug: a patch of no ${field} was asked for`);
  const sorted = Object.fromEntries(keys.map((key) => [key, entries[key]]));
  return JSON.stringify({ metadata: { [field]: sorted } }).replaceAll(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
