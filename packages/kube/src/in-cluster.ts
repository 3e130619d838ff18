import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "./clock.ts";
import type { Credentials } from "./credentials.ts";
import { tokenFile } from "./token-file.ts";

/** What a pod knows of its cluster. */
export interface InClusterOptions {
  /** `KUBERNETES_SERVICE_HOST`. */
  readonly host: string;
  /** `KUBERNETES_SERVICE_PORT`. */
  readonly port: string;
  readonly clock: Clock;
  /** Default `/var/run/secrets/kubernetes.io/serviceaccount`. */
  readonly directory?: string;
}

/** The credentials of the pod that this process runs in. */
export async function loadInClusterCredentials(options: InClusterOptions): Promise<Credentials> {
  const { host, port, clock, directory = "/var/run/secrets/kubernetes.io/serviceaccount" } = options;
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    ca: await readFile(join(directory, "ca.crt"), "utf8"),
    authorize: tokenFile(join(directory, "token"), clock),
  };
}
