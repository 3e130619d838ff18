import { readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { writeRecord } from "../durable/record-file.ts";
import { RecordShelf } from "../durable/record-shelf.ts";
import { createLogger, type Logger } from "../telemetry/logger.ts";

/** Second octets an engine may take: `10.200.0.0/16` to `10.254.0.0/16`. */
const firstOctet = 200;
const lastOctet = 254;

/** The engine's /16 for sandboxes: the one it had before, or the first that nothing on this machine uses. */
export async function ensurePodCidr(
  dataDir: string,
  logger: Logger = createLogger({ component: "supervisor" }),
): Promise<string> {
  const file = path.join(dataDir, "network.json");
  const shelf = new RecordShelf(dataDir, (bad, error) => {
    logger.error({ err: error, file: bad }, "the network's record cannot be read and was set aside; another is chosen");
  });
  const kept = await shelf.read(file, parseNetwork);
  if (kept !== undefined) return kept;
  const podCidr = chooseCidr(usedNetworks());
  await writeRecord(file, `${JSON.stringify({ podCidr })}\n`, { mode: 0o644 });
  return podCidr;
}

function parseNetwork(text: string): string {
  const { podCidr } = JSON.parse(text) as { readonly podCidr?: string };
  if (podCidr === undefined || !/^10\.\d+\.0\.0\/16$/.test(podCidr))
    throw new Error(`"${podCidr}" is no range of ours`);
  return podCidr;
}

/** The first /16 of ours in which no used network begins; throws when all are taken. */
function chooseCidr(used: ReadonlySet<string>): string {
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
