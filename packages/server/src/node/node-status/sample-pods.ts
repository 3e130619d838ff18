import type { Pod } from "@agent-sandbox/api";
import { namespacedKey } from "@agent-sandbox/api";
import type { Informer } from "@agent-sandbox/kube";
import { HostError } from "../host/host-error.ts";
import type { PodContext } from "../pods/pod-context.ts";
import type { PodRecord } from "../pods/pod-record.ts";
import { claimName } from "../volumes/plan-volumes.ts";
import { type LinkCounters, otherEnd, readLinkCounters } from "./link-counters.ts";
import type { Fill, UsageSample } from "./pod-usage.ts";

/** What all pods of the node have of the machine, by the host's names. */
interface Machine {
  readonly links: ReadonlyMap<number, LinkCounters>;
  readonly roots: ReadonlyMap<string, Fill>;
  readonly volumes: ReadonlyMap<string, Fill>;
}

/** Use of every running pod, as of now. */
export async function samplePods(context: PodContext, pods: Pick<Informer<Pod>, "get">): Promise<UsageSample[]> {
  const { host, records, clock } = context;
  const machine = await readMachine(context);
  const found = await Promise.all(
    records
      .all()
      .filter(({ isPrepared }) => isPrepared)
      .map(async (record): Promise<UsageSample[]> => {
        const { uid, namespace, name, cgroup, containers, slot } = record;
        try {
          const stats = await host.cgroupStats({ id: cgroup });
          const network = slot === undefined ? undefined : machine.links.get(slot);
          return [
            {
              namespace,
              pod: name,
              uid,
              containers: Object.keys(containers),
              atMs: clock.nowMs(),
              stats,
              ...(network !== undefined && { network }),
              disks: disksOf(record, machine.roots),
              claims: claimsOf(record, pods.get(namespacedKey(namespace, name)), machine.volumes),
            },
          ];
        } catch (error) {
          // A pod that is being torn down has no figures any more.
          if (error instanceof HostError) return [];
          throw error;
        }
      }),
  );
  return found.flat();
}

async function readMachine({ host, signal }: PodContext): Promise<Machine> {
  const [slots, counters, roots, volumes] = await Promise.all([
    host.listSlots(signal),
    readLinkCounters(),
    host.listRootfs(signal),
    host.listVolumes(signal),
  ]);
  return {
    links: new Map(
      slots.flatMap(({ slot, hostLink }) => {
        const own = counters.get(hostLink);
        return own === undefined ? [] : [[slot, otherEnd(own)] as const];
      }),
    ),
    roots: new Map(roots.flatMap(({ id, writable }) => (writable === undefined ? [] : [[id, writable] as const]))),
    volumes: new Map(volumes.map((volume) => [volume.id, volume] as const)),
  };
}

function disksOf({ containers }: PodRecord, roots: Machine["roots"]): UsageSample["disks"] {
  return Object.values(containers).flatMap(({ name, rootfsId }) => {
    const fill = roots.get(rootfsId);
    return fill === undefined ? [] : [{ container: name, sizeBytes: fill.sizeBytes, usedBytes: fill.usedBytes }];
  });
}

/** A record's volumes are in the order of the claims its pod names. */
function claimsOf(record: PodRecord, pod: Pod | undefined, volumes: Machine["volumes"]): UsageSample["claims"] {
  if (pod?.metadata.uid !== record.uid) return [];
  const names = (pod.spec?.volumes ?? []).flatMap((volume) => claimName(pod, volume) ?? []);
  return names.flatMap((name, index) => {
    const fill = volumes.get(record.volumes[index] ?? "");
    return fill === undefined ? [] : [{ name, sizeBytes: fill.sizeBytes, usedBytes: fill.usedBytes }];
  });
}
