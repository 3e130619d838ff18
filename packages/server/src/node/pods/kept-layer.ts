import { partHostId, podHostId } from "../container-id.ts";

/** Names the writable layer of a Sandbox's container, which outlives pods, or that of a snapshot. Each return to a snapshot has layers of its own. */
export function keptLayerKey(ownerUid: string, container: string, generation?: number): string {
  return partHostId(ownerUid, generation === undefined ? "layer" : `layer-${generation}`, container);
}

/** Whether a kept writable layer belongs to a Sandbox or a snapshot. */
export function isKeptFor(key: string, ownerUid: string): boolean {
  return key.startsWith(`${podHostId(ownerUid)}-`);
}
