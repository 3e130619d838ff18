import { type Attempt, connects, type Place } from "../attempt.ts";
import { type Ground, needsMachine, needsOutside, type OutsideGround, outsidePorts } from "../ground.ts";
import type { Probe } from "../probe.ts";

const { service, dns, quic, dnsTls } = outsidePorts;
/** Where sandboxd listens in every sandbox of our engine. */
const daemonPort = 49_900;

/** Every way out that a program may know, to a host of the public internet. */
function waysOut(at: Place, address: string): Attempt[] {
  return [
    ...connects(
      at,
      [service, quic, dnsTls].map((port) => ({ address, port })),
    ),
    { at, do: "dns", network: "udp", address, port: dns, name: "verify" },
    { at, do: "dns", network: "tcp", address, port: dns, name: "verify" },
    { at, do: "ping", address },
  ];
}

function toOutside(
  choose: (outside: OutsideGround) => readonly string[],
): (ground: Ground) => ReturnType<typeof trial> | string {
  return ({ outside }) => (outside === undefined ? needsOutside : trial(outside, choose(outside)));
}

function trial(outside: OutsideGround, addresses: readonly string[]) {
  const [at, port] = ["prisoner", service] as const;
  return {
    attempts: connects(
      at,
      addresses.map((address) => ({ address, port })),
    ),
    controls: connects(at, [{ address: outside.public, port }]),
  };
}

/** What a sandbox may send, and where to. */
export const networkProbes: readonly Probe[] = [
  {
    id: "egress/deny-all",
    tries: "leave although a policy allows no egress: address literals, QUIC, foreign resolvers, DNS over TLS, ICMP",
    plan: ({ outside, addresses, port }) =>
      outside === undefined
        ? needsOutside
        : {
            attempts: waysOut("confined", outside.public),
            controls: [
              ...waysOut("neighbour", outside.public),
              ...connects("confined", [{ address: addresses.confined, port }]),
            ],
          },
  },
  {
    id: "egress/metadata",
    tries: "reach the metadata services of clouds",
    plan: toOutside(({ metadata }) => metadata),
  },
  { id: "egress/private", tries: "reach private ranges", plan: toOutside((outside) => outside.private) },
  {
    id: "egress/ipv6",
    tries: "reach anything by IPv6",
    plan: ({ outside, port }) =>
      outside === undefined
        ? needsOutside
        : {
            attempts: connects(
              "prisoner",
              outside.ipv6.map((address) => ({ address, port: service })),
            ),
            controls: connects("prisoner", [{ address: "::1", port }]),
          },
  },
  {
    id: "egress/forged-sender",
    tries: "send packets with the address of somebody else",
    plan: ({ outside, addresses, marks }) => {
      if (outside === undefined) return needsOutside;
      const forge = (source: string, word: string): Attempt => ({
        at: "prisoner",
        do: "forge",
        source,
        address: outside.public,
        port: service,
        name: `${marks.prisoner.name}-${word}`,
      });
      return {
        attempts: [forge(addresses.neighbour, "neighbour"), forge("192.0.2.77", "stranger")],
        controls: [forge(addresses.prisoner, "own")],
      };
    },
  },
  {
    id: "host/services",
    tries: "reach a service of the machine: on its addresses, on the gateway, on its loopback",
    plan: ({ host, addresses, port }) =>
      host === undefined
        ? needsMachine
        : {
            attempts: connects("prisoner", host.services),
            controls: [
              ...connects("host", host.services),
              ...connects("prisoner", [{ address: addresses.prisoner, port }]),
            ],
          },
  },
  {
    id: "host/engine",
    tries: "reach the engine's API, router, metrics and kubelet",
    plan: ({ host, kubelets, apiService, addresses, port }) => {
      const targets = [...(host?.engine ?? []), ...kubelets, ...(apiService === undefined ? [] : [apiService])];
      if (targets.length === 0) return "no address of it is known";
      return {
        attempts: targets.map((target) => ({ at: "prisoner", do: "open-port", network: "tcp", ...target })),
        controls: [{ at: "prisoner", do: "open-port", network: "tcp", address: addresses.prisoner, port }],
      };
    },
  },
  {
    id: "neighbours/address",
    tries: "reach another sandbox of the same namespace",
    plan: ({ addresses, port, host }) => ({
      attempts: [
        ...connects("prisoner", [{ address: addresses.neighbour, port }]),
        { at: "prisoner", do: "open-port", network: "tcp", address: addresses.neighbour, port: daemonPort },
      ],
      controls: [
        ...connects("prisoner", [{ address: addresses.prisoner, port }]),
        { at: "prisoner", do: "open-port", network: "tcp", address: addresses.prisoner, port },
        ...(host === undefined ? [] : connects("host", [{ address: addresses.neighbour, port }])),
      ],
    }),
  },
];
