/** A moment as part of a file's name: sorts by time, to the second, without the colons that some file systems refuse. */
export function fileStamp(nowMs: number): string {
  return new Date(nowMs)
    .toISOString()
    .replace(/\.\d+Z$/, "Z")
    .replaceAll(":", "");
}
