import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { TestNamespace } from "./namespace.ts";

/** Everything of an instance that the machine has: mounts, links, rule tables, namespaces, cgroups, loop devices, processes. */
export function footprint(
  place: TestNamespace,
  { dataDir, instance }: { dataDir: string; instance: string },
): string[] {
  const lines = (...argv: string[]): string[] => place.run(argv).stdout.split("\n");
  const named = [
    ...lines("ip", "-o", "link"),
    ...lines("ip", "route", "show", "table", "all"),
    ...lines("nft", "list", "tables"),
    ...lines("sh", "-c", "ls /run/netns 2>/dev/null; true"),
  ];
  return [
    ...lines("cat", "/proc/mounts").filter((line) => line.includes(dataDir) || line.includes(instance)),
    ...named.filter((line) => line.includes(instance)),
    ...cgroupsOf(instance),
    ...loopsBelow(dataDir),
    ...processesNaming(dataDir),
    ...[dataDir, `/proc/${place.pid}/root/run/agent-sandbox/${instance}`].filter((dir) => existsSync(dir)),
  ];
}

function cgroupsOf(instance: string): string[] {
  const root = "/sys/fs/cgroup";
  return ["", ...readdirSync(root)]
    .map((mount) => path.join(root, mount, `agent-sandbox-${instance}`))
    .filter((dir) => existsSync(dir));
}

/** Backing files of loop devices below a directory. */
export function loopsBelow(dir: string): string[] {
  return readdirSync("/sys/block")
    .map((name) => {
      try {
        return readFileSync(`/sys/block/${name}/loop/backing_file`, "utf8").trim();
      } catch {
        // No loop device, or one that was let go while this looked.
        return "";
      }
    })
    .filter((backing) => backing.startsWith(dir));
}

/** Command lines of processes that name a directory. */
export function processesNaming(dir: string): string[] {
  return processTable()
    .filter(({ command }) => command.includes(dir))
    .map(({ command }) => command);
}

/** Every process with its command line. */
export function processTable(): { readonly pid: number; readonly command: string }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      try {
        return { pid: Number(name), command: readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ") };
      } catch {
        // It ended while the table was read.
        return { pid: Number(name), command: "" };
      }
    });
}
