const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** A number of bytes as people read it: `0 B`, `1.5 KiB`, `230 MiB`. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit] ?? ""}`;
}
