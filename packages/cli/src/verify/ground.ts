import type { Engine } from "@agent-sandbox/sdk";
import type { Attempt, Outcome, Place, Target } from "./attempt.ts";

/** What the holder of one place has, by which an attempt from another place recognises that it got there. */
export interface Mark {
  /** The name of a process, of an abstract socket and of a file in /tmp. */
  readonly name: string;
  /** The key of a segment of shared memory. */
  readonly key: number;
}

/** The engine's machine, known where this command runs on it as root. */
export interface HostGround {
  /** The engine's data directory. */
  readonly dataDir: string;
  readonly kernel: string;
  /** By name: pid, net and so on. */
  readonly namespaces: Readonly<Record<string, string>>;
  /** Where our listener of the machine answers: the gateway, and the machine's own addresses. */
  readonly services: readonly Target[];
  /** Listeners of the engine itself. */
  readonly engine: readonly Target[];
  /** Sockets of the engine's own processes. */
  readonly sockets: readonly string[];
}

/** Hosts beyond the engine's machine, all played by one network namespace of ours. */
export interface OutsideGround {
  /** Answers to any sandbox that no policy confines. */
  readonly public: string;
  readonly metadata: readonly string[];
  readonly private: readonly string[];
  readonly ipv6: readonly string[];
  /** Datagrams that came there: the texts of all. */
  readonly noted: () => readonly string[];
}

/** Ports where every host of the outside answers: a service's, DNS, HTTPS and QUIC, DNS over TLS. */
export const outsidePorts = { service: 80, dns: 53, quic: 443, dnsTls: 853 } as const;

/** Everything probes work with. */
export interface Ground {
  readonly engine: Engine;
  readonly namespace: string;
  /** The engine is ours, so that the node refuses what the API lets pass. */
  readonly isOwn: boolean;
  readonly image: string | undefined;
  readonly marks: Readonly<Record<Place, Mark>>;
  /** Where every sandbox's own listener answers. */
  readonly port: number;
  readonly addresses: Readonly<Record<Exclude<Place, "host">, string>>;
  readonly host?: HostGround;
  readonly outside?: OutsideGround;
  /** The kernel of the node, as its Node object or the machine has it; undefined on a cluster whose nodes the user may not see. */
  readonly nodeKernel: string | undefined;
  readonly kubelets: readonly Target[];
  /** The API as Pods of a cluster see it. */
  readonly apiService?: Target;
  readonly limits: { readonly memoryBytes: number; readonly diskBytes: number };
  /** Versions of the runtimes in use, by component. */
  readonly runtimes: Readonly<Record<string, string>>;
  /** Makes attempts at one place, all at once. */
  readonly tryAt: (place: Place, attempts: readonly Attempt[], signal: AbortSignal) => Promise<readonly Outcome[]>;
}

/** Why a probe that needs the machine itself is not made. */
export const needsMachine = "needs root on the engine's machine";

/** Why forbidden addresses are not tried from elsewhere. */
export const needsOutside =
  "would send packets to addresses that are not ours; run it as root on the engine's machine, where they are played";
