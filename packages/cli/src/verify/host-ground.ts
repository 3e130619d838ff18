import { readdirSync, readlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { type EngineRecord, runDirOf } from "@agent-sandbox/kube/engine-record";
import type { Target } from "./attempt.ts";
import type { HostGround } from "./ground.ts";

const namespaceNames = ["pid", "net", "ipc", "uts", "mnt", "user"] as const;

/** What is known of the engine's machine. */
export interface HostQuestion {
  readonly record: EngineRecord;
  readonly gateway: string;
  /** Where our listener of the machine answers. */
  readonly port: number;
}

/** The machine's own IPv4 addresses, loopback and the engine's links included. */
export function machineAddresses(): string[] {
  return Object.values(os.networkInterfaces())
    .flat()
    .flatMap((address) => (address?.family === "IPv4" ? [address.address] : []));
}

/** Reads this machine. */
export function observeHost({ record, gateway, port }: HostQuestion): HostGround {
  const services = [...new Set(["127.0.0.1", gateway, ...machineAddresses()])];
  return {
    dataDir: record.dataDir,
    kernel: kernelWords(),
    namespaces: Object.fromEntries(namespaceNames.map((name) => [name, readlinkSync(`/proc/self/ns/${name}`)])),
    services: services.map((address) => ({ address, port })),
    engine: [record.apiUrl, record.routerUrl, record.metricsUrl].flatMap((url) =>
      ["127.0.0.1", gateway].map((address): Target => ({ address, port: Number(new URL(url).port) })),
    ),
    sockets: socketsBelow(runDirOf(record.dataDir)),
  };
}

/** How the kernel of this machine calls itself, as `uname -rv` prints it. */
export function kernelWords(): string {
  return `${os.release()} ${os.version()}`;
}

/** Sockets of the engine, wherever in its run directory its roles have them. */
function socketsBelow(dir: string): string[] {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isSocket())
    .map((entry) => path.join(entry.parentPath, entry.name));
}
