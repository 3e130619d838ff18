import { readFile } from "node:fs/promises";

/** What went through a link, as its owner sees it. */
export interface LinkCounters {
  readonly receivedBytes: number;
  readonly receivedPackets: number;
  readonly receivedDropped: number;
  readonly sentBytes: number;
  readonly sentPackets: number;
  readonly sentDropped: number;
}

/** Counters of every link of this network namespace, by name. /proc shows the namespace of the reading process, /sys that of the process that mounted it. */
export async function readLinkCounters(): Promise<ReadonlyMap<string, LinkCounters>> {
  return parseLinkCounters(await readFile("/proc/net/dev", "utf8"));
}

/** Reads the kernel's table. Exported for tests. */
export function parseLinkCounters(text: string): Map<string, LinkCounters> {
  const found = new Map<string, LinkCounters>();
  for (const line of text.split("\n")) {
    const [, name = "", rest = ""] = /^\s*([^:\s]+):\s*(.*)$/.exec(line) ?? [];
    const numbers = rest.split(/\s+/).map(Number);
    if (name === "" || numbers.length < 16) continue;
    const at = (index: number): number => numbers[index] ?? 0;
    found.set(name, {
      receivedBytes: at(0),
      receivedPackets: at(1),
      receivedDropped: at(3),
      sentBytes: at(8),
      sentPackets: at(9),
      sentDropped: at(11),
    });
  }
  return found;
}

/** The same link from its other end: what one side sends, the other receives. */
export function otherEnd(counters: LinkCounters): LinkCounters {
  return {
    receivedBytes: counters.sentBytes,
    receivedPackets: counters.sentPackets,
    receivedDropped: counters.sentDropped,
    sentBytes: counters.receivedBytes,
    sentPackets: counters.receivedPackets,
    sentDropped: counters.receivedDropped,
  };
}
