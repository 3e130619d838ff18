/** The instance's addresses; called once at start, before any slot. */
export interface EnsureNetworkRequest {
  /** IPv4 range of all sandboxes, for example `10.200.0.0/16`. */
  readonly cidr: string;
  /** An address of the range that every sandbox has as its next hop, and on which the engine may listen (DNS). */
  readonly gateway: string;
}

/** A network namespace and a veth pair, made ahead of need; it has no address until `assignSlot`. */
export interface EnsureSlotRequest {
  /** 0 to 65535. */
  readonly slot: number;
  /** Default 1500. */
  readonly mtu?: number;
}

/** Gives a slot its address, or gives it back after the runtime took it away: call before every start, restart and restore. */
export interface AssignSlotRequest {
  readonly slot: number;
  readonly address: string;
}

/** A slot as the kernel has it. */
export interface Slot {
  readonly slot: number;
  /** Name of the namespace, a file in `netns` of the run directory. */
  readonly namespace: string;
  /** Name of the link on the host's side. */
  readonly hostLink: string;
  /** The address that is routed to the slot, if any. */
  readonly address?: string;
}

/** What is held, and how many connections have arrived so far. */
export interface HeldConnections {
  readonly connections: readonly HeldConnection[];
  readonly count: number;
}

/** A TCP connection that arrived for an address whose connections wait and is held, unanswered, until `handOver` or `dropHeld`. */
export interface HeldConnection {
  readonly address: string;
  readonly port: number;
  readonly source: string;
}
