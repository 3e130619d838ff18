import type { ArchiveSettings } from "../node/archive/archive-settings.ts";
import type { CollectionLimits } from "../node/images/plan-collection.ts";
import type { ResourceLimits } from "../node/limits.ts";
import { EngineError } from "./engine-error.ts";
import type { RoleUsers } from "./role-user.ts";

/** Everything the processes of one engine need to know; written by the supervisor, read by each role. */
export interface EngineConfig {
  readonly dataDir: string;
  readonly users: RoleUsers;
  readonly apiListen: ListenAddress;
  readonly routerListen: ListenAddress;
  /** Loopback only, for clients that can send no credential; off unless asked for. */
  readonly routerInsecureListen?: ListenAddress;
  readonly metricsListen: ListenAddress;
  /** The node's kubelet endpoint. */
  readonly kubeletListen: ListenAddress;
  /** Where the admin kubeconfig is copied, besides the one for root. */
  readonly kubeconfigOut?: string;
  readonly logLevel: string;
  /** What the audit log of control holds. */
  readonly auditLevel: "off" | "metadata" | "request";
  readonly clusterDomain: string;
  readonly nodeName: string;
  /** The /16 of all sandboxes; see pod-network.ts. */
  readonly podCidr: string;
  /** Whether Pods may ask for the trusted tier, `runc`. */
  readonly allowRunc: boolean;
  /** Host directories that hostPath volumes may use. */
  readonly hostPathAllowList: readonly string[];
  /** Sandboxes the node keeps running for Pods that are still to come. */
  readonly sandboxesAhead: number;
  readonly imageCollection: CollectionLimits;
  /** How the machine is shared out. */
  readonly limits: ResourceLimits;
  /** Where archived Sandboxes go; absent: nowhere. */
  readonly archive?: ArchiveSettings;
  readonly programs: EnginePrograms;
}

/** One is what a user needs who starts one sandbox after the other. */
export const sandboxesAheadDefault = 1;

/** Each waiting sandbox is a booted sentry that holds memory until a Pod takes it. */
const sandboxesAheadMax = 64;

/** Reads `--sandboxes-ahead`; throws with the flag's name. */
export function parseSandboxesAhead(count: number | string): number {
  const value = Number(count);
  if (!Number.isInteger(value) || value < 0 || value > sandboxesAheadMax)
    throw new EngineError(`--sandboxes-ahead: '${count}' is not a number from 0 to ${sandboxesAheadMax}`, {
      code: "usage",
    });
  return value;
}

/** Full paths of the native programs. */
export interface EnginePrograms {
  readonly runsc: string;
  readonly runscVersion: string;
  readonly runc?: string;
  readonly sandboxd: string;
  readonly sandboxHost: string;
}

/** A TCP address to listen on; port 0 lets the kernel choose. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Reads `host:port` or `[v6]:port`; throws with the flag's name. */
export function parseListenAddress(flag: string, text: string): ListenAddress {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:\s]*)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535)
    throw new EngineError(
      `${flag}: '${text}' is not HOST:PORT; write it like 127.0.0.1:7443, an IPv6 address like [::1]:7443, with a port up to 65535`,
      { code: "usage" },
    );
  return { host: match[1] ?? (match[2] === "" || match[2] === undefined ? "127.0.0.1" : match[2]), port };
}

/** The addresses a role says it listens on when it is ready, and where they were asked for. */
const addressFacts = {
  apiAddress: "apiListen",
  routerAddress: "routerListen",
  metricsAddress: "metricsListen",
  kubeletAddress: "kubeletListen",
} as const;

/** The configuration with the ports that roles were given: one that is started again takes the same, because clients know them. */
export function withAddresses(config: EngineConfig, facts: Readonly<Record<string, string>>): EngineConfig {
  const taken = Object.entries(addressFacts).flatMap(([fact, option]) => {
    const address = facts[fact];
    if (address === undefined) return [];
    // Where it listens was decided before; a role tells which port it was given there.
    return [[option, { host: config[option].host, port: parseListenAddress(fact, address).port }]];
  });
  return { ...config, ...Object.fromEntries(taken) };
}

/** `host:port`, with brackets around an IPv6 address. */
export function formatAddress({ host, port }: ListenAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
