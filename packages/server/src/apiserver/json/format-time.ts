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
