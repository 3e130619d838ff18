/** `group/version`, or the version alone for the core group. */
export function groupVersion({ group, version }: { group: string; version: string }): string {
  return group === "" ? version : `${group}/${version}`;
}

/** Splits an apiVersion; the core group is the empty string. */
export function parseGroupVersion(apiVersion: string): { group: string; version: string } {
  const slash = apiVersion.indexOf("/");
  if (slash < 0) return { group: "", version: apiVersion };
  return { group: apiVersion.slice(0, slash), version: apiVersion.slice(slash + 1) };
}

let lastSecond = -1;
let lastText = "";

/** RFC 3339 with seconds, the format of metav1.Time. Writes of one second share the text. */
export function formatTime(epochMs: number): string {
  const second = Math.floor(epochMs / 1000);
  if (second !== lastSecond) {
    lastText = `${new Date(second * 1000).toISOString().slice(0, 19)}Z`;
    lastSecond = second;
  }
  return lastText;
}
