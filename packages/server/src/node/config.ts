import type { Taint } from "@agent-sandbox/api";
import type { CollectionLimits } from "./images/plan-collection.ts";

/** What the operator decided about this node. Everything has a value: main fills in the defaults. */
export interface NodeConfig {
  readonly nodeName: string;
  /** The node's own directory; all that it names to the host lies below it. */
  readonly dataDir: string;
  /** The host's own, in which the node may read what a sandbox wrote for it. */
  readonly hostDir: string;
  /** Where the operator puts files for the node. */
  readonly settingsDir: string;
  /** Six hexadecimal digits; in the name of everything this engine leaves on the machine. */
  readonly instance: string;
  /** The daemon that is mounted into sandboxes, as root keeps it in the data directory. */
  readonly sandboxdPath: string;
  /** Address of this node as pods and the API server see it. */
  readonly nodeAddress: string;
  /** IPv4 range of all sandboxes; its first address is the gateway. */
  readonly podCidr: string;
  /** Zone of service names, `cluster.local`. */
  readonly clusterDomain: string;
  readonly dns: {
    /** 53; tests take another. */
    readonly port: number;
    /** Default: the gateway address. */
    readonly address?: string;
    /** The machine's resolvers, `address` or `address:port`. */
    readonly resolvers: readonly string[];
    readonly searches: readonly string[];
  };
  readonly kubelet: {
    readonly host: string;
    readonly port: number;
    /** PEM text. */
    readonly certificate: string;
    readonly key: string;
    /** Who signs client certificates; absent: only tokens are taken. */
    readonly clientCa?: string;
  };
  readonly allowRunc: boolean;
  readonly hostPathAllowList: readonly string[];
  readonly podsMax: number;
  /** Sandboxes kept running for Pods that are still to come, beside what Pods have; 0: none. */
  readonly sandboxesAhead: number;
  readonly imageCollection: CollectionLimits;
  /** Size of the writable layer of a container that names none (limits.ephemeral-storage). */
  readonly writableBytesDefault: number;
  /** Version of this program, shown as the kubelet's. */
  readonly version: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Of a node that is registered for the first time; default none. */
  readonly taints?: readonly Taint[];
}
