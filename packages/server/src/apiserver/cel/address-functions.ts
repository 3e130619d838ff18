import type { Environment } from "@marcbachmann/cel-js";
import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** An address as rules see it. */
class CelAddress {
  readonly address: Address;

  constructor(address: Address) {
    this.address = address;
  }
}

/** A network as rules see it. */
class CelNetwork {
  readonly address: Address;
  readonly bits: number;

  constructor(address: Address, bits: number) {
    this.address = address;
    this.bits = bits;
  }
}

/** Adds `ip`, `cidr` and their methods, as Kubernetes offers them to rules. */
export function registerAddressFunctions(environment: Environment): void {
  environment
    .registerType("IP", { ctor: CelAddress, fields: {} })
    .registerType("CIDR", { ctor: CelNetwork, fields: {} })
    .registerFunction("isIP(string): bool", (text: string) => tryAddress(text) !== undefined)
    .registerFunction("isCIDR(string): bool", (text: string) => tryNetwork(text) !== undefined)
    .registerFunction("ip(string): IP", parseAddress)
    .registerFunction("cidr(string): CIDR", parseNetwork);
  registerAddressMethods(environment);
  registerNetworkMethods(environment);
}

function registerAddressMethods(environment: Environment): void {
  const range = ({ address }: CelAddress): string => address.range();
  environment
    .registerFunction("IP.family(): int", ({ address }: CelAddress) => (address.kind() === "ipv4" ? 4n : 6n))
    .registerFunction("IP.isUnspecified(): bool", (ip: CelAddress) => range(ip) === "unspecified")
    .registerFunction("IP.isLoopback(): bool", (ip: CelAddress) => range(ip) === "loopback")
    .registerFunction("IP.isLinkLocalUnicast(): bool", (ip: CelAddress) => range(ip) === "linkLocal")
    .registerFunction("IP.isLinkLocalMulticast(): bool", ({ address }: CelAddress) =>
      isWithin(address, address.kind() === "ipv4" ? "224.0.0.0/24" : "ff02::/16"),
    )
    .registerFunction("IP.isGlobalUnicast(): bool", (ip: CelAddress) =>
      ["unspecified", "loopback", "linkLocal", "multicast", "broadcast"].every((other) => range(ip) !== other),
    );
}

function registerNetworkMethods(environment: Environment): void {
  environment
    .registerFunction("CIDR.containsIP(string): bool", (net: CelNetwork, text: string) =>
      contains(net, parseAddress(text).address),
    )
    .registerFunction("CIDR.containsIP(IP): bool", (net: CelNetwork, ip: CelAddress) => contains(net, ip.address))
    .registerFunction("CIDR.containsCIDR(string): bool", (net: CelNetwork, text: string) =>
      containsNetwork(net, parseNetwork(text)),
    )
    .registerFunction("CIDR.containsCIDR(CIDR): bool", containsNetwork)
    .registerFunction("CIDR.ip(): IP", ({ address }: CelNetwork) => new CelAddress(address))
    .registerFunction("CIDR.prefixLength(): int", ({ bits }: CelNetwork) => BigInt(bits))
    .registerFunction("CIDR.masked(): CIDR", masked);
}

/** Kubernetes takes no zones and no IPv4 addresses in IPv6 clothes here. */
function tryAddress(text: string): Address | undefined {
  const isPlain = !text.includes("%") && (text.includes(":") || /^(\d{1,3}\.){3}\d{1,3}$/.test(text));
  if (!isPlain || /(^|\.)0\d/.test(text) || !ipaddr.isValid(text)) return undefined;
  const address = ipaddr.parse(text);
  return address.kind() === "ipv6" && (address as ipaddr.IPv6).isIPv4MappedAddress() ? undefined : address;
}

function tryNetwork(text: string): CelNetwork | undefined {
  const [host = "", bits = "", ...rest] = text.split("/");
  const address = tryAddress(host);
  if (address === undefined || rest.length > 0 || !/^(0|[1-9]\d{0,2})$/.test(bits)) return undefined;
  const most = address.kind() === "ipv4" ? 32 : 128;
  return Number(bits) <= most ? new CelNetwork(address, Number(bits)) : undefined;
}

function parseAddress(text: string): CelAddress {
  const address = tryAddress(text);
  if (address === undefined)
    throw new Error(`IP Address ${JSON.stringify(text)} parse error during conversion from string`);
  return new CelAddress(address);
}

function parseNetwork(text: string): CelNetwork {
  const network = tryNetwork(text);
  if (network === undefined) throw new Error("network address parse error during conversion from string");
  return network;
}

function contains({ address, bits }: CelNetwork, other: Address): boolean {
  return address.kind() === other.kind() && other.match(address as never, bits);
}

function containsNetwork(net: CelNetwork, other: CelNetwork): boolean {
  return other.bits >= net.bits && contains(net, other.address);
}

function isWithin(address: Address, network: string): boolean {
  return contains(parseNetwork(network), address);
}

function masked({ address, bits }: CelNetwork): CelNetwork {
  const bytes = address.toByteArray().map((byte, index) => {
    const kept = Math.min(8, Math.max(0, bits - index * 8));
    return byte & (0xff << (8 - kept)) & 0xff;
  });
  return new CelNetwork(ipaddr.fromByteArray(bytes), bits);
}
