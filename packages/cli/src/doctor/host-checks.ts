import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, statfs } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { layoutOf } from "@agent-sandbox/server/main/layout";
import { findPrograms } from "@agent-sandbox/server/main/programs";
import { describeAdvisories } from "@agent-sandbox/server/main/runtime-versions";
import { formatBytes } from "../output/bytes.ts";
import type { Check, Look } from "./check.ts";

const run = promisify(execFile);

/** Below this an image or two fill the disk. */
const diskFreeMin = 5 * 2 ** 30;

/** What the machine must bring. */
export const hostChecks: readonly Check[] = [
  {
    title: "privileges",
    look: async () =>
      process.getuid?.() === 0
        ? { verdict: "ok", detail: "root" }
        : {
            verdict: "broken",
            detail: "not root",
            advice: "Namespaces, mounts and cgroups need root; run it again as root.",
          },
  },
  {
    title: "machine",
    look: async () => ({
      verdict: "ok",
      detail: `Linux ${os.release()} ${os.arch()}, ${os.availableParallelism()} processors, ${formatBytes(os.totalmem())}, Node ${process.version}`,
    }),
  },
  { title: "cgroups", look: async () => lookAtCgroups() },
  { title: "file systems", look: async () => lookAtFileSystems(), mend: () => loadModules(["overlay", "loop"]) },
  { title: "packet filter", look: async () => lookAtPacketFilter(), mend: () => loadModules(["nf_tables", "veth"]) },
  {
    title: "data directory",
    look: async ({ dataDir }) => {
      const { assertUsable } = await import("@agent-sandbox/server/main/older-version");
      // What it throws says what to do.
      assertUsable(layoutOf(dataDir));
      return { verdict: "ok", detail: `${dataDir} is, or will be, root's alone` };
    },
  },
  {
    title: "disk",
    look: async ({ dataDir }) => {
      let place = dataDir;
      while (!existsSync(place)) place = path.dirname(place);
      const { bavail, bsize } = await statfs(place);
      const free = bavail * bsize;
      const detail = `${formatBytes(free)} free at ${place}`;
      return free < diskFreeMin
        ? { verdict: "warning", detail, advice: "Free some, or move the engine with --data-dir." }
        : { verdict: "ok", detail };
    },
    mend: async ({ dataDir }) => void (await mkdir(dataDir, { recursive: true })),
  },
  {
    title: "gVisor (runsc)",
    look: async () => {
      const { runsc, runscVersion } = findPrograms();
      const { stdout } = await run(runsc, ["--version"]);
      const detail = `${stdout.split("\n")[0] ?? ""} (${runscVersion})`;
      const { found, text } = describeAdvisories({ component: "runsc", version: runscVersion });
      if (found.length === 0) return { verdict: "ok", detail: `${detail}, no known advisory` };
      return {
        verdict: "broken",
        detail: `${detail} has ${text}`,
        advice: "Update agent-sandbox: it brings its runtime.",
      };
    },
  },
  {
    title: "runc, the trusted tier",
    look: async () => {
      const { runc } = findPrograms();
      if (runc === undefined)
        return {
          verdict: "warning",
          detail: "not installed; only gVisor sandboxes can be had",
          advice: "It is optional: install the package runc.",
        };
      const { stdout } = await run(runc, ["--version"]);
      const detail = stdout.split("\n")[0] ?? "";
      const version = /version (\S+)/.exec(detail)?.[1] ?? detail;
      const { found, text } = describeAdvisories({ component: "runc", version });
      if (found.length === 0) return { verdict: "ok", detail: `${detail}, no known advisory` };
      const advice = "Update the package runc, unless your distribution mended it under the same number.";
      return { verdict: "warning", detail: `${detail} has ${text}`, advice };
    },
  },
];

function lookAtCgroups(): Look {
  const isUnified = existsSync("/sys/fs/cgroup/cgroup.controllers");
  const found = isUnified
    ? readFileSync("/sys/fs/cgroup/cgroup.controllers", "utf8").trim().split(" ")
    : ["cpu", "memory", "pids"].filter((name) => existsSync(`/sys/fs/cgroup/${name}`));
  const missing = ["cpu", "memory", "pids"].filter((name) => !found.includes(name));
  const detail = `${isUnified ? "v2" : "v1"}: ${["cpu", "memory", "pids"].filter((name) => found.includes(name)).join(", ")}`;
  if (missing.length === 0) return { verdict: "ok", detail };
  return {
    verdict: "warning",
    detail: `${detail}; without ${missing.join(", ")}`,
    advice: "Limits of these kinds cannot be enforced.",
  };
}

function lookAtFileSystems(): Look {
  const known = readFileSync("/proc/filesystems", "utf8");
  if (!/\boverlay$/m.test(known))
    return { verdict: "broken", detail: "no overlayfs", advice: "Load it: modprobe overlay" };
  if (!existsSync("/dev/loop-control"))
    return {
      verdict: "warning",
      detail: "overlay; no loop devices, so volumes have no size limit",
      advice: "Load them: modprobe loop",
    };
  return { verdict: "ok", detail: "overlay, loop devices" };
}

async function lookAtPacketFilter(): Promise<Look> {
  const advice = "Install the package nftables, and load its module: modprobe nf_tables";
  try {
    const { stdout } = await run("nft", ["--version"]);
    await run("nft", ["list", "tables"]);
    return { verdict: "ok", detail: stdout.trim() };
  } catch (error) {
    return { verdict: "broken", detail: `nftables does not work: ${(error as Error).message.split("\n")[0]}`, advice };
  }
}

async function loadModules(names: readonly string[]): Promise<void> {
  for (const name of names) await run("modprobe", [name]);
}
