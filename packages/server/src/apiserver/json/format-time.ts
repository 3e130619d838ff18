import { formatTimestamp } from "@agent-sandbox/api";

let lastSecond = -1;
let lastText = "";

/** RFC 3339 with seconds, the format of metav1.Time. Writes of one second share the text. */
export function formatTime(epochMs: number): string {
  const second = Math.floor(epochMs / 1000);
  if (second !== lastSecond) {
    lastText = formatTimestamp(epochMs);
    lastSecond = second;
  }
  return lastText;
}
