import { readFileSync } from "node:fs";

/** One line of the kernel's table of mounts. */
interface Mount {
  readonly point: string;
  readonly options: readonly string[];
}

const readTable = (): string => readFileSync("/proc/self/mountinfo", "utf8");

/** The mount that a path is on: the longest of those above it, and of several on one point the last. */
export function mountOf(place: string, table = readTable()): Mount | undefined {
  return mountsIn(table)
    .filter(({ point }) => point === "/" || place === point || place.startsWith(`${point}/`))
    .reduce<Mount | undefined>(
      (best, mount) => (best === undefined || mount.point.length >= best.point.length ? mount : best),
      undefined,
    );
}

/** The points below directories at which something is mounted, in the order in which it was. */
export function mountsBelow(dirs: readonly string[], table = readTable()): readonly string[] {
  return mountsIn(table)
    .map(({ point }) => point)
    .filter((point) => dirs.some((dir) => point.startsWith(`${dir}/`)));
}

function mountsIn(table: string): readonly Mount[] {
  return table
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.split(" "))
    .map(([, , , , point = "", options = ""]) => ({ point: unescaped(point), options: options.split(",") }));
}

/** The kernel writes blanks in paths as three octal digits. */
function unescaped(point: string): string {
  return point.replace(/\\(\d{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
