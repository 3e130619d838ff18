import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { type Credentials, loadInClusterCredentials, loadKubeconfig, systemClock } from "@agent-sandbox/kube";

/**
 * Credentials of a role on a cluster: the kubeconfig it was given, else the cluster's own, else the user's. Inside a
 * cluster with broken credentials it fails instead of falling back: a role must not act as somebody else by accident.
 */
export async function clusterCredentials(kubeconfig: string): Promise<Credentials> {
  if (kubeconfig !== "") return (await loadKubeconfig({ path: kubeconfig, clock: systemClock })).credentials;
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = process.env;
  if (host !== undefined) return loadInClusterCredentials({ host, port, clock: systemClock });
  const own = path.join(os.homedir(), ".kube/config");
  if (!existsSync(own))
    throw new Error("no credentials: not in a cluster, and neither --kubeconfig nor ~/.kube/config");
  return (await loadKubeconfig({ path: own, clock: systemClock })).credentials;
}

/** The namespace a role runs in; outside a cluster the one our manifests use. */
export async function ownNamespace(): Promise<string> {
  const file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
  const text = await readFile(file, "utf8").catch(() => "");
  return text.trim() === "" ? "agent-sandbox-system" : text.trim();
}
