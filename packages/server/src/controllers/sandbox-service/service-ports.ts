import type { Container, PodSpec, ServicePort } from "@agent-sandbox/api";

interface Exposed {
  readonly port: number;
  readonly protocol: string;
  name: string | undefined;
}

/** The Service ports of a pod spec: one per (port, protocol), sorted, explicit names before generated ones. */
export function servicePortsOf(spec: PodSpec): ServicePort[] {
  const sidecars = (spec.initContainers ?? []).filter((container) => container.restartPolicy === "Always");
  const exposed = collect([...(spec.containers ?? []), ...sidecars]);
  const taken = new Set<string>();
  for (const entry of exposed) if (entry.name !== undefined) taken.add(entry.name);
  return exposed.map((entry) => ({
    name: entry.name ?? generatedName(entry, taken),
    protocol: entry.protocol,
    port: entry.port,
    targetPort: entry.port,
  }));
}

function collect(containers: readonly Container[]): Exposed[] {
  const byPair = new Map<string, Exposed>();
  const names = new Set<string>();
  for (const container of containers) {
    for (const { containerPort, protocol, name } of container.ports ?? []) {
      if (containerPort === 0) continue;
      const wire = protocol === undefined || protocol === "" ? "TCP" : protocol;
      const pair = `${containerPort}/${wire}`;
      const entry = byPair.get(pair) ?? { port: containerPort, protocol: wire, name: undefined };
      byPair.set(pair, entry);
      if (entry.name === undefined && name !== undefined && name !== "" && !names.has(name)) {
        entry.name = name;
        names.add(name);
      }
    }
  }
  return [...byPair.values()].sort((a, b) => a.port - b.port || compareText(a.protocol, b.protocol));
}

function generatedName({ port, protocol }: Exposed, taken: Set<string>): string {
  const base = `p-${port}-${protocol.toLowerCase()}`;
  let name = base;
  for (let suffix = 2; taken.has(name); suffix++) name = `${base}-${suffix}`;
  taken.add(name);
  return name;
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
