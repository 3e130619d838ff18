import { accessSync, constants, existsSync, readFileSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { systemTool } from "../../installation/installation.ts";
import { moduleState, modulesDir } from "./kernel-modules.ts";
import { broken, type Look, ok } from "./look.ts";
import { type FailedProgram, ProgramTimeout, run } from "./run-program.ts";

/** What the native programs are built for. */
const architectures: readonly string[] = ["x64", "arm64"];

/** gVisor is a Linux program for two architectures. */
export function lookAtMachine(): Look {
  const detail = `${os.type()} ${os.release()} ${process.arch}, ${os.availableParallelism()} processors, ${Math.round(os.totalmem() / 2 ** 30)} GiB, Node ${process.version}`;
  if (process.platform === "linux" && architectures.includes(process.arch)) return ok(detail);
  return broken(
    "unsupported",
    `an engine runs on Linux on x86_64 or arm64, and this is ${process.platform} on ${process.arch}`,
    "use the engine of another machine with --kubeconfig",
  );
}

const controllers = ["cpu", "memory", "pids"];
const cgroupRoot = "/sys/fs/cgroup";

/** Every sandbox has a group of its own, which root makes in the mounted hierarchies. */
export function lookAtCgroups(): Look {
  const isUnified = existsSync(path.join(cgroupRoot, "cgroup.controllers"));
  const found = isUnified
    ? readFileSync(path.join(cgroupRoot, "cgroup.controllers"), "utf8").trim().split(" ")
    : controllers.filter((name) => existsSync(path.join(cgroupRoot, name, "cgroup.procs")));
  const used = controllers.filter((name) => found.includes(name));
  if (!isUnified && used.length === 0)
    return broken(
      "unsupported",
      `no cgroup file system is mounted at ${cgroupRoot}`,
      "mount it with: mount -t cgroup2 none /sys/fs/cgroup, or start the container with --privileged --cgroupns=host",
    );
  const closed = (isUnified ? [cgroupRoot] : used.map((name) => path.join(cgroupRoot, name))).find(isClosed);
  if (closed !== undefined)
    return broken(
      "denied",
      `the cgroup file system ${closed} is read-only, so that no sandbox can be given its limits`,
      `make it writable with: mount -o remount,rw ${closed}, or start the container with --privileged`,
    );
  const missing = controllers.filter((name) => !used.includes(name));
  const detail = `${isUnified ? "v2" : "v1"}: ${used.join(", ")}`;
  if (missing.length === 0) return ok(detail);
  return {
    verdict: "warning",
    detail: `${detail}; without ${missing.join(", ")}`,
    advice: "limits of these kinds cannot be enforced",
  };
}

/** Also true of root where the mount is read-only. */
function isClosed(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return false;
  } catch {
    return true;
  }
}

/** What tells whether the kernel has the file systems and devices that are used. */
interface KernelPlaces {
  readonly fileSystems: string;
  readonly loopControl: string;
  readonly modulesDir: string;
}

const kernelPlaces: KernelPlaces = {
  fileSystems: "/proc/filesystems",
  loopControl: "/dev/loop-control",
  modulesDir,
};

/** Images are stacked with overlayfs, and what a sandbox writes goes to a file that is mounted through a loop device. */
export function lookAtFileSystems(places = kernelPlaces): Look {
  const looks = [lookAtOverlay(places), lookAtLoopDevices(places)];
  const worst = looks.find(({ verdict }) => verdict === "broken") ?? looks.find(({ verdict }) => verdict === "warning");
  return worst ?? ok(looks.map(({ detail }) => detail).join(", "));
}

/** The kernel lists a file system once its module is loaded, and the first mount loads it: a list without it proves nothing. */
function lookAtOverlay({ fileSystems, modulesDir: dir }: KernelPlaces): Look {
  if (/\boverlay$/m.test(readFileSync(fileSystems, "utf8"))) return ok("overlay");
  const advice = "load it with: modprobe overlay";
  switch (moduleState("overlay", dir)) {
    case "available":
      return ok("overlay (a module that the first mount loads)");
    case "unknown":
      return {
        verdict: "warning",
        detail: `overlayfs is not loaded, and without ${dir} it is unknown whether the first mount can load it`,
        advice,
      };
    case "missing":
      return broken("unsupported", "this kernel has no overlayfs, neither loaded nor as a module", advice);
  }
}

/** Opening the file loads the module. Without the file nothing does, but where the module is there one command makes the file. */
function lookAtLoopDevices({ loopControl, modulesDir: dir }: KernelPlaces): Look {
  if (statSync(loopControl, { throwIfNoEntry: false }) !== undefined) return ok("loop devices");
  const detail = `there is no ${loopControl}, and what sandboxes write is kept in loop devices`;
  if (moduleState("loop", dir) === "available")
    return { verdict: "warning", detail, advice: "load them with: modprobe loop" };
  return broken(
    "unsupported",
    detail,
    "load them with: modprobe loop, or start the container with --privileged -v /dev:/dev",
  );
}

/** The network of sandboxes is kept apart by nftables. Where that is a module, listing the tables loads it. */
export async function lookAtPacketFilter(): Promise<Look> {
  try {
    const { file, env } = systemTool("nft", process.env["PATH"]);
    const stdout = await run(file, ["list", "tables"], { env });
    return ok(`nftables, ${stdout.split("\n").filter(Boolean).length} tables`);
  } catch (error) {
    if (error instanceof ProgramTimeout)
      return broken(
        "failed",
        error.message,
        "try nft list tables by hand: the kernel or another program holds the rules",
      );
    const { code, stderr = "", message } = error as FailedProgram;
    if (code === "ENOENT") return broken("failed", "the program nft is missing", "install the package nftables");
    const said = (stderr.trim() || message).split("\n")[0];
    return broken("unsupported", `nftables does not work here (${said})`, "load its module with: modprobe nf_tables");
  }
}

/** Programs of the distribution that the helper starts, and the packages that bring them. */
const tools = { nft: "nftables", "mkfs.ext4": "e2fsprogs", e2fsck: "e2fsprogs", resize2fs: "e2fsprogs" } as const;

/** What the set-up installs where it may, and what a release brings along. */
export function lookAtTools(): Look {
  const missing = Object.entries(tools).filter(([name]) => !existsSync(systemTool(name, process.env["PATH"]).file));
  if (missing.length === 0) return ok(Object.keys(tools).join(", "));
  const names = missing.map(([name]) => name).join(", ");
  const packages = [...new Set(missing.map(([, debianPackage]) => debianPackage))].join(" ");
  return broken("failed", `missing programs: ${names}`, `install them, on Debian with: apt-get install ${packages}`);
}
