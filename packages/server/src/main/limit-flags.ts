import { statfs } from "node:fs/promises";
import os from "node:os";
import { tryParseQuantity } from "@agent-sandbox/api";
import { type LimitWishes, planLimits, type ResourceLimits } from "../node/limits.ts";
import { readProcessIds } from "../node/node-status/process-ids.ts";

/** The flags that share the machine out, as typed; undefined or empty is what follows from the machine. */
export interface LimitFlags {
  readonly systemReservedMemory?: string | undefined;
  readonly systemReservedDisk?: string | undefined;
  readonly defaultPodMemory?: string | undefined;
  readonly defaultPodDisk?: string | undefined;
  readonly podMaxPids?: number | string | undefined;
}

/** Reads the flags; errors name them. */
export function parseLimitFlags(flags: LimitFlags): { wishes: LimitWishes; errors: string[] } {
  const errors: string[] = [];
  const bytes = (flag: string, text: string | undefined): number | undefined => {
    if (text === undefined || text === "") return undefined;
    const value = Number(tryParseQuantity(text)?.units ?? -1n);
    if (value >= 0) return value;
    errors.push(`${flag}: '${text}' is not a quantity such as 512Mi`);
    return undefined;
  };
  const pids = flags.podMaxPids === undefined || flags.podMaxPids === "" ? undefined : Number(flags.podMaxPids);
  if (pids !== undefined && !Number.isInteger(pids)) errors.push(`--pod-max-pids: '${flags.podMaxPids}' is no number`);
  const wishes = {
    reservedMemoryBytes: bytes("--system-reserved-memory", flags.systemReservedMemory),
    reservedDiskBytes: bytes("--system-reserved-disk", flags.systemReservedDisk),
    podMemoryBytes: bytes("--default-pod-memory", flags.defaultPodMemory),
    podDiskBytes: bytes("--default-pod-disk", flags.defaultPodDisk),
    podPidsMax: pids,
  };
  return { wishes, errors };
}

/** Shares this machine out as the flags say; throws with everything that is wrong with them. The data directory must exist. */
export async function limitsOf(flags: LimitFlags, dataDir: string): Promise<ResourceLimits> {
  const { wishes, errors } = parseLimitFlags(flags);
  if (errors.length > 0) throw new Error(errors.join("; "));
  const [disk, ids] = await Promise.all([statfs(dataDir), readProcessIds()]);
  const machine = { memoryBytes: os.totalmem(), diskBytes: disk.blocks * disk.bsize, pidsMax: ids.max };
  const planned = planLimits(wishes, machine);
  if (planned.errors.length > 0) throw new Error(planned.errors.join("; "));
  return planned.limits;
}

/** What is kept free of the disk where the engine does not run, so that its flags are not known. The data directory must exist. */
export async function defaultDiskFloorBytes(dataDir: string): Promise<number> {
  const { blocks, bsize } = await statfs(dataDir);
  const machine = { memoryBytes: os.totalmem(), diskBytes: blocks * bsize, pidsMax: Number.MAX_SAFE_INTEGER };
  return planLimits({}, machine).limits.reservedDiskBytes;
}
