/** What the machine keeps for itself, and what a pod may have that names no limit. */
export interface ResourceLimits {
  /** Memory that no sandbox gets: the engine and the rest of the machine live in it. */
  readonly reservedMemoryBytes: number;
  /** Disk that is kept free: below it nothing is made, and what grows is ended. */
  readonly reservedDiskBytes: number;
  /** Processes and threads that all sandboxes together may have. */
  readonly sandboxesPids: number;
  /** Memory of the containers that name no limit, together. */
  readonly podMemoryBytes: number;
  /** Writable layer of a container that names no limit, and an emptyDir without a size. */
  readonly podDiskBytes: number;
  /** Processes and threads of a pod. */
  readonly podPidsMax: number;
}

/** What an operator decided; what is undefined follows from the machine. */
export interface LimitWishes {
  readonly reservedMemoryBytes?: number | undefined;
  readonly reservedDiskBytes?: number | undefined;
  readonly podMemoryBytes?: number | undefined;
  readonly podDiskBytes?: number | undefined;
  readonly podPidsMax?: number | undefined;
}

/** The machine that is shared out. */
export interface MachineSize {
  readonly memoryBytes: number;
  readonly diskBytes: number;
  /** Processes and threads the kernel has numbers for. */
  readonly pidsMax: number;
}

const mebibyte = 2 ** 20;
const gibibyte = 2 ** 30;

/** Control, router, node and the helper take about 300 MiB with a few sandboxes; what they hold for each grows with the machine. */
const reservedMemoryMinBytes = 512 * mebibyte;
const reservedMemoryShare = 0.1;

/** A disk is looked at every second: what a fast one writes in that time, and room for the engine's own files until somebody makes some. */
const reservedDiskMinBytes = gibibyte;
const reservedDiskMaxBytes = 10 * gibibyte;
const reservedDiskShare = 0.05;

/** Part of what sandboxes have that a pod without a limit may take: four of them fit, and each can run an ordinary build. */
const podMemoryShare = 0.25;
const podMemoryMinBytes = 512 * mebibyte;
const podMemoryMaxBytes = 4 * gibibyte;

const podDiskBytes = 10 * gibibyte;

/** The sentry's own threads count, so it is generous. */
const podPidsMax = 4096;

/** The rest is for processes that are not in sandboxes; the node is under pressure from there on. */
const sandboxesPidsShare = 0.9;

/** Less is no sandbox: the sentry alone takes about 25 MiB. */
const memoryLeftMinBytes = 256 * mebibyte;

/** Shares the machine out. Errors name the flag. */
export function planLimits(wishes: LimitWishes, machine: MachineSize): { limits: ResourceLimits; errors: string[] } {
  const reservedMemoryBytes =
    wishes.reservedMemoryBytes ??
    Math.min(
      Math.floor(machine.memoryBytes / 2),
      Math.max(reservedMemoryMinBytes, Math.floor(machine.memoryBytes * reservedMemoryShare)),
    );
  const left = machine.memoryBytes - reservedMemoryBytes;
  const limits: ResourceLimits = {
    reservedMemoryBytes,
    reservedDiskBytes:
      wishes.reservedDiskBytes ??
      within(Math.floor(machine.diskBytes * reservedDiskShare), reservedDiskMinBytes, reservedDiskMaxBytes),
    sandboxesPids: Math.floor(machine.pidsMax * sandboxesPidsShare),
    podMemoryBytes:
      wishes.podMemoryBytes ??
      Math.min(left, within(Math.floor(left * podMemoryShare), podMemoryMinBytes, podMemoryMaxBytes)),
    podDiskBytes: wishes.podDiskBytes ?? podDiskBytes,
    podPidsMax: wishes.podPidsMax ?? podPidsMax,
  };
  return { limits, errors: complaints(limits, machine) };
}

function complaints(limits: ResourceLimits, { memoryBytes, diskBytes }: MachineSize): string[] {
  const errors: string[] = [];
  const left = memoryBytes - limits.reservedMemoryBytes;
  if (left < memoryLeftMinBytes)
    errors.push(`--system-reserved-memory leaves ${Math.max(0, left)} bytes of ${memoryBytes} for sandboxes`);
  if (limits.reservedDiskBytes >= diskBytes)
    errors.push(`--system-reserved-disk is more than the ${diskBytes} bytes of the disk`);
  if (limits.podMemoryBytes < 4 * mebibyte) errors.push("--default-pod-memory must be at least 4Mi");
  if (limits.podDiskBytes < 16 * mebibyte) errors.push("--default-pod-disk must be at least 16Mi");
  if (limits.podPidsMax < 64 || limits.podPidsMax > 4_194_304)
    errors.push("--pod-max-pids must be between 64 and 4194304");
  return errors;
}

function within(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}

/** Memory that all sandboxes together have. */
export function sandboxesMemoryBytes(
  { reservedMemoryBytes }: Pick<ResourceLimits, "reservedMemoryBytes">,
  machineMemoryBytes: number,
): number {
  return Math.max(0, machineMemoryBytes - reservedMemoryBytes);
}
