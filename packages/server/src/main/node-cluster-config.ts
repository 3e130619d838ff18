import type { Taint } from "@agent-sandbox/api";
import type { EngineConfig } from "./engine-config.ts";
import type { RoleUsers } from "./role-user.ts";

/** What the process that supervises a cluster's node hands to its child. */
export interface ClusterNodeConfig
  extends Pick<
    EngineConfig,
    | "dataDir"
    | "logLevel"
    | "clusterDomain"
    | "nodeName"
    | "podCidr"
    | "allowRunc"
    | "hostPathAllowList"
    | "sandboxesAhead"
    | "imageCollection"
    | "limits"
    | "programs"
    | "kubeletListen"
    | "archive"
  > {
  readonly users: Pick<RoleUsers, "node">;
  /** Empty: the credentials of the Pod this runs in. */
  readonly kubeconfig: string;
  /** PEM files of the kubelet endpoint; absent: a certificate that signs itself. */
  readonly serving?: { readonly certFile: string; readonly keyFile: string };
  /** Empty: what the API server publishes. */
  readonly clientCaFile: string;
  readonly podsMax: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly Taint[];
}
