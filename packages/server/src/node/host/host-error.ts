/**
 * Why a verb of sandbox-host failed. Each code is marked *user* (the caller's input, or the sandbox owner's, is at fault; do not retry
 * unchanged) or *system* (this machine is at fault; retry with back-off, and tell the operator).
 */
export const hostErrorCodes = {
  /** A field of the request is missing, malformed or outside its bounds; the message starts with the field path. *user* */
  "invalid-argument": "user",
  /** A path, link or archive entry would lead outside the place it is confined to. *user* */
  "path-escape": "user",
  /** A layer holds something that is never unpacked: a device node, or an entry type that is not part of the format. *user* */
  "entry-refused": "user",
  /** The bytes of a layer do not match the digest or the diffId they were announced with. *user* */
  "digest-mismatch": "user",
  /** A hostPath that is not below one of the prefixes the operator allowed. *user* */
  "host-path-denied": "user",
  /** The named layer, root file system, volume, slot, cgroup or container does not exist. *user* */
  "not-found": "user",
  /** The name is taken by something made with other parameters. *user* */
  "already-exists": "user",
  /** The object is in use (a layer under a mount, a container that runs) or in a state that the verb does not apply to. *user* */
  busy: "user",
  /** The container's first process, or an exec's, could not be started: no such program, not executable, no such directory. *user* */
  "start-failed": "user",
  /** The saved state cannot be restored here as it is: another processor, another image under the root file system, a build of runsc that is missing. *user* */
  "restore-refused": "user",
  /** The runtime's program, `nft` or `mkfs.ext4` is not installed; the message says which and what to do. *system* */
  "runtime-missing": "system",
  /** This runtime, kernel or machine cannot do what was asked (pause without a freezer, a limit without its controller). *system* */
  unsupported: "system",
  /** The rule set was refused by the kernel; the previous one is still in force. *system* */
  "rules-rejected": "system",
  /** No space, no inode or no loop device left under the data directory. *system* */
  "no-space": "system",
  /** The runtime failed in a way that has no better name; the message carries the end of its log. *system* */
  "runtime-failed": "system",
  /** The runtime could not save the sandbox, or what it wrote is not whole; the guest runs on. *system* */
  "save-failed": "system",
  /** The runtime could not restore the sandbox, or could not read all of its memory; the saved state stays. *system* */
  "restore-failed": "system",
  /** The verb's deadline passed; its effects so far stay, and calling it again completes it. *system* */
  "deadline-exceeded": "system",
  /** The caller is not root nor the engine's user. *system* */
  "permission-denied": "system",
  /** The socket is not there or was cut: sandbox-host is being restarted. Verbs are idempotent: call again. *system* */
  unavailable: "system",
  /** A system call failed; the message names it. *system* */
  internal: "system",
} as const satisfies Record<string, "user" | "system">;

/** One of the codes of `hostErrorCodes`. */
export type HostErrorCode = keyof typeof hostErrorCodes;

/** A verb of sandbox-host failed. */
export class HostError extends Error {
  override readonly name = "HostError";
  readonly code: HostErrorCode;

  constructor(code: HostErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }

  /** Whose fault it is: decides between a reason on the Pod and a retry. */
  get blame(): "user" | "system" {
    return hostErrorCodes[this.code];
  }
}
