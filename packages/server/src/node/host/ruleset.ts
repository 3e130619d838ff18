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

/** Allows traffic with any of `blocks` on any of `ports`. An absent list means "any"; an empty one matches nothing. */
export interface AllowRule {
  readonly blocks?: readonly RuleBlock[];
  readonly ports?: readonly RulePort[];
}

/** What one sandbox may do. Traffic between two sandboxes passes only if the egress of one and the ingress of the other allow it. */
export interface EndpointRules {
  readonly slot: number;
  readonly address: string;
  readonly ingress: readonly AllowRule[];
  readonly egress: readonly AllowRule[];
}

/**
 * Everything the instance's table holds; each call replaces all of it in one transaction. Not openable by any rule: this machine's own addresses
 * (except `gatewayPorts` on the gateway), 169.254.0.0/16, 127.0.0.0/8, 0.0.0.0/8, multicast, broadcast, and IPv6 altogether.
 */
export interface RuleSet {
  readonly endpoints: readonly EndpointRules[];
  /** Ports of the gateway address that sandboxes may reach (DNS). */
  readonly gatewayPorts: readonly RulePort[];
  /** Addresses of sleeping sandboxes: TCP to any port of them is held and reported by `waitHeld`. Their `ingress` still applies. */
  readonly sleeping: readonly { readonly address: string; readonly ingress: readonly AllowRule[] }[];
}
