import { readFileSync } from "node:fs";
import path from "node:path";

const recordFile = path.resolve(import.meta.dirname, "../../node_modules/.agent-sandbox/cluster.json");

/** The programs of a real Kubernetes, and the S3 server, that set-up built. */
export type ProgramName =
  | "containerd"
  | "containerd-shim-runc-v2"
  | "containerd-shim-runsc-v1"
  | "ctr"
  | "etcd"
  | "helm"
  | "host-local"
  | "kube-apiserver"
  | "kube-controller-manager"
  | "kube-scheduler"
  | "kubectl"
  | "kubectl-old"
  | "kubelet"
  | "loopback"
  | "pause"
  | "ptp"
  | "versitygw";

/** Where one of them is. */
export function programPath(name: ProgramName): string {
  const record = readRecord();
  const file = record[name];
  if (file === undefined) throw new Error(`${recordFile} names no ${name}; run node scripts/setup.mjs --cluster`);
  return file;
}

function readRecord(): Readonly<Record<string, string>> {
  try {
    return JSON.parse(readFileSync(recordFile, "utf8")) as Record<string, string>;
  } catch (cause) {
    throw new Error("the cluster's programs are not built; run node scripts/setup.mjs --cluster", { cause });
  }
}
