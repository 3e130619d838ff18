import { readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { writeRecord } from "../durable/record-file.ts";
import { RecordShelf } from "../durable/record-shelf.ts";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import { EngineError } from "./engine-error.ts";
import { EngineLock } from "./engine-lock.ts";
import { writeRootFile } from "./root-files.ts";

/** Second octets an engine may take: `10.200.0.0/16` to `10.254.0.0/16`. */
const firstOctet = 200;
const lastOctet = 254;

/** Where engines that start at once write down what they chose; `/run` is empty after a boot, as are all routes. */
const machineDir = "/run/agent-sandbox";

interface NetworkOptions {
  readonly logger?: Logger;
  /** A directory of root's that all engines of this machine share. */
  readonly sharedDir?: string;
  /** The first two octets of every address and route of this machine. */
  readonly used?: () => ReadonlySet<string>;
}

/**
 * The engine's /16 for sandboxes: the one it had before, or the first that nothing on this machine uses. Two engines that start at
 * once see the same routes, so that a choice is made and written down under a lock. Throws where the kept one is another engine's by now.
 */
export async function ensurePodCidr(
  dataDir: string,
  {
    logger = createLogger({ component: "supervisor" }),
    sharedDir = machineDir,
    used = usedNetworks,
  }: NetworkOptions = {},
): Promise<string> {
  const shelf = new RecordShelf(dataDir, (bad, error) => {
    logger.error({ err: error, file: bad }, "the network's record cannot be read and was set aside; another is chosen");
  });
  const kept = await shelf.read(networkFile(dataDir), parseNetwork);
  using lock = EngineLock.takeIn(sharedDir, "networks.lock");
  if (lock === undefined)
    throw new EngineError("another engine of this machine is choosing its network; try again", { code: "conflict" });
  const ledger = path.join(sharedDir, "networks.json");
  const others = liveEntries(ledger).filter((entry) => entry.dataDir !== dataDir);
  const owner = others.find(({ cidr }) => cidr === kept)?.dataDir;
  // Two that chose it before a boot keep it both; the second to start finds the first one's routes.
  if (owner !== undefined && used().has(prefixOf(kept ?? "")))
    throw new EngineError(takenNetwork(dataDir, kept ?? "", owner), { code: "conflict" });
  const podCidr = kept ?? chooseCidr(new Set([...used(), ...others.map(({ cidr }) => prefixOf(cidr))]));
  // The record first: an entry without one counts for nothing.
  if (kept === undefined) await writeRecord(networkFile(dataDir), `${JSON.stringify({ podCidr })}\n`, { mode: 0o644 });
  const remaining = others.filter(({ cidr }) => cidr !== podCidr);
  writeRootFile(ledger, JSON.stringify([...remaining, { cidr: podCidr, dataDir }]));
  return podCidr;
}

const networkFile = (dataDir: string): string => path.join(dataDir, "network.json");

const takenNetwork = (dataDir: string, cidr: string, owner: string): string =>
  `the sandboxes of ${dataDir} have addresses in ${cidr}, which the engine of ${owner} uses; stop that one first (agent-sandbox down --data-dir ${owner})`;

interface Entry {
  readonly cidr: string;
  readonly dataDir: string;
}

/** Entries whose data directory still says the same: one that was purged or that chose again has no claim. */
function liveEntries(ledger: string): Entry[] {
  return readEntries(ledger).filter(({ cidr, dataDir }) => {
    try {
      return parseNetwork(readFileSync(networkFile(dataDir), "utf8")) === cidr;
    } catch {
      return false;
    }
  });
}

function readEntries(ledger: string): Entry[] {
  try {
    return JSON.parse(readFileSync(ledger, "utf8")) as Entry[];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Whether a range, as `network.json` has it, is one that this machine has an address or a route in. */
export function isNetworkUsed(text: string): boolean {
  return usedNetworks().has(prefixOf(parseNetwork(text)));
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
  throw new EngineError(
    `every network from 10.${firstOctet}.0.0/16 to 10.${lastOctet}.0.0/16 is in use on this machine; free one of them`,
    { code: "conflict" },
  );
}

/** The first two octets of an address. */
const prefixOf = (address: string): string => address.split(".").slice(0, 2).join(".");

function usedNetworks(): ReadonlySet<string> {
  const addresses = Object.values(os.networkInterfaces()).flatMap(
    (entries) => entries?.map(({ address }) => address) ?? [],
  );
  const routes = readFileSync("/proc/net/route", "utf8").split("\n").slice(1).map(destinationOf);
  return new Set([...addresses, ...routes].map(prefixOf));
}

/** The destination of a line of /proc/net/route: hexadecimal in host byte order, so the first octet is last. */
function destinationOf(line: string): string {
  const hex = line.split("\t")[1] ?? "";
  return (hex.match(/../g) ?? [])
    .map((byte) => Number.parseInt(byte, 16))
    .toReversed()
    .join(".");
}
