import { execFile } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { type OutsideGround, outsidePorts } from "./ground.ts";
import { type Holder, startHolder } from "./host-probe.ts";

const run = promisify(execFile);

/** Names of what is made here. One run at a time has them, so that the next one can remove what a killed one left. */
const namespace = "as-verify";
const link = "as-verify";
/** The number of a routing table and the priority of the rules that lead to it; neither is one of the kernel's own. */
const table = "7190";
const priority = "7190";

const near = "192.0.2.1";
const far = "192.0.2.2";
const near6 = "fd71:90::1";
const far6 = "fd71:90::2";

/** Addresses that the namespace has, besides the public one, which is of a range that no real host has. */
const publicAddress = "203.0.113.10";
const metadata = ["169.254.169.254", "100.100.100.200", "192.0.0.192"];
const privateHosts = ["10.9.9.9", "172.16.5.5", "192.168.7.7", "100.64.1.1", "198.18.0.9"];
const ipv6 = ["fd00:ec2::254", "2001:db8:7190::1"];
const hasIpv6 = existsSync("/proc/sys/net/ipv6");

/** What the outside needs to know of the engine. */
export interface OutsideQuestion {
  readonly program: string;
  readonly name: string;
  /** Addresses of the sandboxes whose packets end here instead of on the machine's network. */
  readonly sandboxes: readonly string[];
  readonly podCidr: string;
  /** The machine's own addresses: what is here already is not played. */
  readonly taken: readonly string[];
}

/**
 * Opens the outside: a network namespace with the addresses that sandboxes must not reach, and one that they may. Rules lead every packet that one of the
 * sandboxes sends, whatever its sender says, into that namespace and nowhere else; no other traffic of the machine is touched.
 */
export async function openOutside(question: OutsideQuestion): Promise<OutsideGround & AsyncDisposable> {
  const { program, name, taken } = question;
  await removeOutside();
  const played = (list: readonly string[]): string[] => list.filter((address) => !taken.includes(address));
  const ground = {
    public: publicAddress,
    metadata: played(metadata),
    private: played(privateHosts),
    ipv6: hasIpv6 ? ipv6 : [],
  };
  let holder: Holder | undefined;
  const close = async (): Promise<void> => {
    await holder?.[Symbol.asyncDispose]();
    await removeOutside();
  };
  try {
    const addresses = [ground.public, ...ground.metadata, ...ground.private, ...ground.ipv6];
    await makeNamespace(addresses, question.podCidr);
    for (const sandbox of question.sandboxes) await lead(sandbox, question.podCidr);
    const ports = Object.values(outsidePorts);
    const listen = addresses.flatMap((address) => ports.map((port) => `${bracketed(address)}:${port}`));
    const prefix = ["ip", "netns", "exec", namespace];
    holder = await startHolder(program, name, { holding: { key: 0, files: [], listen }, prefix });
  } catch (error) {
    await close();
    throw error;
  }
  const { noted } = holder;
  return { ...ground, noted, [Symbol.asyncDispose]: close };
}

function bracketed(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}

async function makeNamespace(addresses: readonly string[], podCidr: string): Promise<void> {
  const inside = ["-n", namespace];
  await ip("netns", "add", namespace);
  await ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace);
  await ip("addr", "add", `${near}/30`, "dev", link);
  await ip("link", "set", link, "up");
  allowAsymmetry();
  await ip(...inside, "addr", "add", `${far}/30`, "dev", "eth0");
  await ip(...inside, "link", "set", "eth0", "up");
  await ip(...inside, "link", "set", "lo", "up");
  await ip(...inside, "route", "add", podCidr, "via", near);
  for (const address of addresses)
    await ip(...inside, "addr", "add", hostOnly(address), "dev", "lo", ...undetected(address));
  await ip("route", "add", "default", "via", far, "dev", link, "table", table);
  if (hasIpv6) await joinIpv6();
}

/** The same for IPv6, which no sandbox has: one that had it would end here too. */
async function joinIpv6(): Promise<void> {
  await ip("addr", "add", `${near6}/126`, "dev", link, "nodad");
  await ip("-n", namespace, "addr", "add", `${far6}/126`, "dev", "eth0", "nodad");
  await ip("-n", namespace, "-6", "route", "add", "default", "via", near6);
  await ip("-6", "route", "add", "default", "via", far6, "dev", link, "table", table);
}

function hostOnly(address: string): string {
  return `${address}/${address.includes(":") ? 128 : 32}`;
}

/** Without `nodad` an IPv6 address is tentative for a second, and a listener cannot bind it. */
function undetected(address: string): string[] {
  return address.includes(":") ? ["nodad"] : [];
}

/** Answers of the outside come from addresses that the machine has no route to: where it checks senders, it must do so loosely. */
function allowAsymmetry(): void {
  const file = `/proc/sys/net/ipv4/conf/${link}/rp_filter`;
  const isStrict = readFileSync("/proc/sys/net/ipv4/conf/all/rp_filter", "utf8").trim() === "1";
  if (existsSync(file)) writeFileSync(file, isStrict ? "2" : "0");
}

/** Leads a sandbox's packets to the outside, except those for other sandboxes. By address, for answers; by link, for what a forged sender sends. */
async function lead(sandbox: string, podCidr: string): Promise<void> {
  const [route] = JSON.parse((await run("ip", ["-j", "route", "get", sandbox])).stdout) as [{ dev?: string }];
  const first = ["priority", priority];
  const second = ["priority", String(Number(priority) + 1)];
  const senders = [["from", sandbox], ...(route.dev === undefined ? [] : [["iif", route.dev]])];
  for (const sender of senders) {
    await ip("rule", "add", ...first, ...sender, "to", podCidr, "lookup", "main");
    await ip("rule", "add", ...second, ...sender, "lookup", table);
  }
  if (hasIpv6 && route.dev !== undefined) await ip("-6", "rule", "add", ...second, "iif", route.dev, "lookup", table);
}

/** Removes everything of this name; what is not there is gone already. */
async function removeOutside(): Promise<void> {
  for (const family of ["-4", "-6"])
    for (const place of [priority, String(Number(priority) + 1)])
      while (await worked("ip", family, "rule", "del", "priority", place));
  for (const family of ["-4", "-6"]) await worked("ip", family, "route", "flush", "table", table);
  await worked("ip", "link", "del", link);
  await worked("ip", "netns", "del", namespace);
}

async function ip(...args: readonly string[]): Promise<void> {
  await run("ip", [...args]);
}

async function worked(file: string, ...args: readonly string[]): Promise<boolean> {
  try {
    await run(file, [...args]);
    return true;
  } catch {
    return false;
  }
}
