/** Where an attempt is made: on the engine's machine, in a sandbox without any policy, in its neighbour, or in one whose egress a policy closes. */
export type Place = "host" | "prisoner" | "neighbour" | "confined";

/** Ways that `sandbox-probe` knows. */
export type Way =
  | "connect"
  | "open-port"
  | "dns"
  | "ping"
  | "forge"
  | "read"
  | "write"
  | "socket"
  | "find"
  | "plant"
  | "device"
  | "descriptors"
  | "mount"
  | "capability"
  | "call"
  | "kernel"
  | "process"
  | "namespace"
  | "segment"
  | "memory"
  | "disk"
  | "processes"
  | "files"
  | "log";

/** One thing to try, as `sandbox-probe try` takes it. */
export interface Attempt {
  readonly at: Place;
  readonly do: Way;
  readonly network?: "tcp" | "udp";
  readonly address?: string;
  readonly source?: string;
  readonly port?: number;
  readonly path?: string;
  readonly name?: string;
  readonly value?: string;
  readonly number?: number;
  /** How long what was taken is kept. */
  readonly holdMs?: number;
}

/** What an attempt came to. */
export interface Outcome {
  readonly through: boolean;
  readonly detail: string;
  /** It was cut short: it has shown nothing, and what it is part of is unproven. */
  readonly unknown?: boolean;
}

/** An address and a port. */
export interface Target {
  readonly address: string;
  readonly port: number;
}

/** Tries a listener of ours over TCP and over UDP. */
export function connects(at: Place, targets: readonly Target[]): Attempt[] {
  return targets.flatMap((target) =>
    (["tcp", "udp"] as const).map((network): Attempt => ({ at, do: "connect", network, ...target })),
  );
}

/** A kubelet lets a sandbox write more than its limit and evicts it up to ten seconds later: what is tried next needs another sandbox. */
export function isOverDisk(attempts: readonly Attempt[], outcomes: readonly Outcome[], diskBytes: number): boolean {
  return attempts.some(
    ({ do: way, number = 0 }, index) => way === "disk" && number > diskBytes && outcomes[index]?.through === true,
  );
}

/** One line for people. */
export function describeAttempt({ at, do: way, network, address, port, path, name }: Attempt): string {
  const where = address === undefined ? "" : `${address.includes(":") ? `[${address}]` : address}:${port ?? ""}`;
  const words = [way, network, where, path, name].filter((word) => word !== undefined && word !== "");
  return `${words.join(" ")} (${at})`;
}
