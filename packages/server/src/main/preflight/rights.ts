import { readFileSync } from "node:fs";
import { broken, type Look, ok } from "./look.ts";
import { type FailedProgram, run } from "./run-program.ts";

/** Everything an engine does on the host is root's to do. */
export function lookAtUser(): Look {
  if (process.getuid?.() === 0) return ok("root");
  return broken(
    "denied",
    "the engine needs root to make namespaces, mounts and cgroups",
    "run it again as root, for example with sudo, or use the engine of another machine with --kubeconfig",
  );
}

/** The capabilities that are used, by their bit. A container that is not privileged lacks the first two. */
const capabilities = {
  CAP_SYS_ADMIN: 21,
  CAP_NET_ADMIN: 12,
  CAP_SYS_CHROOT: 18,
  CAP_SETUID: 7,
  CAP_SETGID: 6,
  CAP_CHOWN: 0,
  CAP_DAC_OVERRIDE: 1,
} as const;

const containerAdvice =
  "start the container with all of them, as docker run --privileged does, or run the engine on the machine itself";

/** Root in a container may lack the rights of root: capabilities, and system calls that its filter refuses. */
export async function lookAtRights(): Promise<Look> {
  const held = BigInt(`0x${/^CapEff:\s+([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0"}`);
  const missing = Object.entries(capabilities).filter(([, bit]) => ((held >> BigInt(bit)) & 1n) === 0n);
  if (missing.length > 0) {
    const names = missing.map(([name]) => name).join(", ");
    return broken("denied", `this process is root without ${names}, as in a container without rights`, containerAdvice);
  }
  const all = attempts.map(([flag]) => flag);
  if ((await refusalOf(...all)) === undefined) return ok("capabilities, namespaces and mounts");
  for (const [flag, what] of attempts) {
    const refusal = await refusalOf(flag);
    if (refusal !== undefined)
      return broken(
        "denied",
        `this machine or container refuses to make ${what} (${refusal}), though this process is root`,
        "let its seccomp and AppArmor profiles allow unshare and mount, as docker run --privileged does",
      );
  }
  return broken("denied", "this machine or container refuses to make namespaces in one another", containerAdvice);
}

/** `unshare --mount` also changes how mounts propagate, which is a mount(2). A sandbox has a user namespace of its own. */
const attempts = [
  ["--mount", "mount namespaces and mounts"],
  ["--net", "network namespaces"],
  ["--user", "user namespaces"],
] as const;

async function refusalOf(...flags: readonly string[]): Promise<string | undefined> {
  try {
    await run("unshare", [...flags, "--", "true"]);
    return undefined;
  } catch (error) {
    const { code, stderr = "", message } = error as FailedProgram;
    // A root that has nothing but the C library has no such program, and all rights perhaps: the first sandbox tells.
    if (code === "ENOENT") return undefined;
    return (stderr.trim() || message).split("\n")[0]?.replace(/^unshare: /, "");
  }
}
