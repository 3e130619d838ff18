/** One line of a container's log: `<RFC 3339 nanoseconds> <stdout|stderr> <F|P> <text>`. */
export interface LogLine {
  /** As written, for `--timestamps`. */
  readonly time: string;
  readonly stream: "stdout" | "stderr";
  /** The text goes on in the next line of the same stream. */
  readonly isPartial: boolean;
  readonly text: Buffer;
}

/** Longest line that is taken as one; a longer one was not written by the log writer. */
export const lineBytesMax = 64 * 1024;

const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

/** Reads one line of the file; undefined for anything a hostile or broken writer may have put there. */
export function tryParseLogLine(line: Buffer): LogLine | undefined {
  const first = line.indexOf(0x20);
  const second = first < 0 ? -1 : line.indexOf(0x20, first + 1);
  const third = second < 0 ? -1 : line.indexOf(0x20, second + 1);
  if (third < 0 || first > 40) return undefined;
  const time = line.toString("latin1", 0, first);
  const stream = line.toString("latin1", first + 1, second);
  const tag = line.toString("latin1", second + 1, third);
  if (!timePattern.test(time) || (stream !== "stdout" && stream !== "stderr")) return undefined;
  if (tag !== "F" && tag !== "P") return undefined;
  return { time, stream, isPartial: tag === "P", text: line.subarray(third + 1) };
}
