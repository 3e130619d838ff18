import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/** Second octets an engine may take: `10.200.0.0/16` to `10.254.0.0/16`. */
const firstOctet = 200;
const lastOctet = 254;

/** The engine's /16 for sandboxes: the one it had before, or the first that nothing on this machine uses. */
export async function ensurePodCidr(dataDir: string): Promise<string> {
  const file = path.join(dataDir, "network.json");
  const kept = await readFile(file, "utf8").catch(() => undefined);
  if (kept !== undefined) return (JSON.parse(kept) as { podCidr: string }).podCidr;
  const podCidr = chooseCidr(usedNetworks());
  await writeFile(file, `${JSON.stringify({ podCidr })}\n`);
  return podCidr;
}

/** The first /16 of ours in which no used network begins; throws when all are taken. */
export function chooseCidr(used: ReadonlySet<string>): string {
  for (let octet = firstOctet; octet <= lastOctet; octet += 1) {
    if (!used.has(`10.${octet}`)) return `10.${octet}.0.0/16`;
  }
  throw new Error(`every network from 10.${firstOctet}.0.0/16 to 10.${lastOctet}.0.0/16 is in use on this machine`);
}

/** The first two octets of every address and route of this machine. */
function usedNetworks(): ReadonlySet<string> {
  const addresses = Object.values(os.networkInterfaces()).flatMap(
    (entries) => entries?.map(({ address }) => address) ?? [],
  );
  const routes = readFileSync("/proc/net/route", "utf8").split("\n").slice(1).map(destinationOf);
  return new Set([...addresses, ...routes].map((address) => address.split(".").slice(0, 2).join(".")));
}

/** The destination of a line of /proc/net/route: hexadecimal in host byte order, so the first octet is last. */
function destinationOf(line: string): string {
  const hex = line.split("\t")[1] ?? "";
  return (hex.match(/../g) ?? [])
    .map((byte) => Number.parseInt(byte, 16))
    .toReversed()
    .join(".");
}
