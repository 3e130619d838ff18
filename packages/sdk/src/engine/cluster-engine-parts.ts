import type { Client } from "@agent-sandbox/kube/client";
import type { Credentials } from "@agent-sandbox/kube/credentials";
import type { Engine } from "./engine.ts";

/** What an engine is made of. */
export interface ClusterEngineParts {
  readonly kind: Engine["kind"];
  readonly isInCluster: boolean;
  readonly credentials: Credentials;
  readonly client: Client;
  readonly namespace: string;
  readonly routerUrl: string | undefined;
  readonly routerCa?: string;
}
