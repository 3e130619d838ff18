/** The transport protocols that rules can name. */
export type RuleProtocol = "TCP" | "UDP" | "SCTP";

/** A port or a range of ports; without `port`, every port of the protocol. */
export interface RulePort {
  readonly protocol: RuleProtocol;
  readonly port?: number;
  readonly endPort?: number;
}

/** An IPv4 range without some parts of it. */
export interface RuleBlock {
  readonly cidr: string;
  readonly except?: readonly string[];
}

/**
 * Allows traffic with any of `blocks` or any address of `groups` on any of `ports`. Without both lists of peers, and without a list of ports, any
 * will do; an empty list matches nothing.
 */
export interface AllowRule {
  readonly blocks?: readonly RuleBlock[];
  /** Ids of groups. */
  readonly groups?: readonly string[];
  readonly ports?: readonly RulePort[];
}

/** Addresses that rules name as one, so that who joins changes no rule; the id is up to 64 hexadecimal digits. */
export interface RuleGroup {
  readonly id: string;
  readonly addresses: readonly string[];
}

/** What one sandbox may do. Traffic between two sandboxes passes only if the egress of one and the ingress of the other allow it. */
export interface EndpointRules {
  readonly slot: number;
  readonly address: string;
  /** It has its network, but TCP to it from sandboxes and from root is held as for a sleeping one. */
  readonly held?: true;
  readonly ingress: readonly AllowRule[];
  readonly egress: readonly AllowRule[];
}

/**
 * Everything the instance's table holds; `applyRules` replaces all of it in one transaction. Not openable by any rule: this machine's own addresses
 * (except `gatewayPorts` on the gateway), 169.254.0.0/16, 127.0.0.0/8, 0.0.0.0/8, multicast, broadcast, and IPv6 altogether.
 */
export interface RuleSet {
  /** The caller's name for this state, for changes to build on. */
  readonly revision?: string;
  readonly endpoints: readonly EndpointRules[];
  /** Ports of the gateway address that sandboxes may reach (DNS). */
  readonly gatewayPorts: readonly RulePort[];
  /** Addresses of sleeping sandboxes: TCP to any port of them is held and reported by `waitHeld`. Their `ingress` still applies. */
  readonly sleeping: readonly SleepingRules[];
  readonly groups?: readonly RuleGroup[];
}

/** A sleeping sandbox's address and who may wake it. */
export interface SleepingRules {
  readonly address: string;
  readonly ingress: readonly AllowRule[];
}

/** The difference between two rule sets, made in one transaction that costs what it changes. */
export interface RuleChange {
  readonly base: string;
  readonly revision: string;
  /** These and `sleeping` are whole, in place of what was said of their addresses. */
  readonly endpoints: readonly EndpointRules[];
  readonly sleeping: readonly SleepingRules[];
  /** Addresses that nothing is said of any more. */
  readonly removed: readonly string[];
  /** One that is not there yet is made. */
  readonly groups: readonly {
    readonly id: string;
    readonly added: readonly string[];
    readonly removed: readonly string[];
  }[];
  readonly removedGroups: readonly string[];
}
