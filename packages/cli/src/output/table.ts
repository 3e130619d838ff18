/** What a table has to fit into. */
export interface TableOptions {
  /** Columns of the terminal; absent: as wide as needed, for pipes and files. */
  readonly width?: number;
}

const gap = "   ";
/** A column that is cut keeps this many characters, or what its title needs. */
const columnMin = 8;

/** Aligns rows under their titles; on a terminal the widest columns are cut until a row fits. */
export function formatTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  options: TableOptions = {},
): string {
  const clean = rows.map((row) => row.map((cell) => cell.replace(/\s+/g, " ").trim()));
  const widths = titles.map((title, index) => Math.max(title.length, ...clean.map((row) => row[index]?.length ?? 0)));
  if (options.width !== undefined) shrink(widths, titles, options.width);
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, index) => fit(cell, widths[index] ?? 0, index === cells.length - 1))
      .join(gap)
      .trimEnd();
  return [titles, ...clean].map((row) => `${line(row)}\n`).join("");
}

function shrink(widths: number[], titles: readonly string[], width: number): void {
  const least = titles.map((title, index) => Math.min(widths[index] ?? 0, Math.max(columnMin, title.length)));
  for (;;) {
    const excess = widths.reduce((sum, one) => sum + one, 0) + gap.length * (widths.length - 1) - width;
    if (excess <= 0) return;
    const room = widths.map((one, index) => one - (least[index] ?? 0));
    const widest = room.indexOf(Math.max(...room));
    if ((room[widest] ?? 0) <= 0) return;
    // One at a time, so that columns of like width stay alike.
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
}

function fit(cell: string, width: number, isLast: boolean): string {
  if (cell.length > width) return `${cell.slice(0, Math.max(0, width - 1))}…`;
  return isLast ? cell : cell.padEnd(width);
}
