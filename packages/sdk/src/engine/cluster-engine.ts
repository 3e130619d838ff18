import type { Client } from "@agent-sandbox/kube/client";
import type { Credentials } from "@agent-sandbox/kube/credentials";
import type { DataPlane } from "../plane/data-plane.ts";
import { LazyPlane } from "../plane/lazy-plane.ts";
import type { ClusterEngineParts } from "./cluster-engine-parts.ts";
import type { Engine, PlaneTarget } from "./engine.ts";

/** An engine behind a Kubernetes API, ours or a cluster's. */
export class ClusterEngine implements Engine {
  readonly kind: Engine["kind"];
  readonly server: string;
  readonly namespace: string;
  readonly client: Client;
  readonly credentials: Credentials;
  readonly routerUrl: string | undefined;
  readonly #parts: ClusterEngineParts;
  #isOwn: Promise<boolean> | undefined;

  constructor(parts: ClusterEngineParts) {
    this.#parts = parts;
    this.kind = parts.kind;
    this.server = parts.credentials.server;
    this.namespace = parts.namespace;
    this.client = parts.client;
    this.credentials = parts.credentials;
    this.routerUrl = parts.routerUrl;
  }

  openPlane(target: PlaneTarget): DataPlane {
    return new LazyPlane(async () => (await import("./open-plane.ts")).openPlane(this.#parts, target));
  }

  openRouter(): DataPlane {
    return new LazyPlane(async () => (await import("./open-plane.ts")).openRouter(this.#parts, () => ({})));
  }

  isOwn(): Promise<boolean> {
    if (this.kind === "local") return Promise.resolve(true);
    this.#isOwn ??= this.client
      .raw<{ gitVersion?: string }>({ method: "GET", path: "/version" })
      .then(({ gitVersion = "" }) => gitVersion.includes("+agent-sandbox"));
    return this.#isOwn;
  }

  close(): Promise<void> {
    return this.client.transport.close();
  }
}
