import type { Client } from "@agent-sandbox/kube/client";
import type { Credentials } from "@agent-sandbox/kube/credentials";
import { tlsOptions } from "@agent-sandbox/kube/tls-connection";
import type { DataPlane } from "../plane/data-plane.ts";
import { FallbackPlane } from "../plane/fallback-plane.ts";
import { HttpPlane } from "../plane/http-plane.ts";
import { RouterPlane, routerHeaders } from "../plane/router-plane.ts";
import { SparePlane } from "../plane/spare-plane.ts";
import { randomKey } from "../process/random-key.ts";
import { ExecPlane } from "../tunnel/exec-plane.ts";
import { openPortForward } from "../tunnel/port-forward.ts";
import type { Engine, PlaneTarget } from "./engine.ts";

/** A network policy drops packets without a word; a way that is open answers within a round trip. */
const directProbeMs = 1_500;
/** A tunnel says when nobody listens; only a machine that is very busy takes long to say anything. */
const tunnelProbeMs = 20_000;

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
    if (!target.hasDaemon) return this.#execPlane(target);
    if (this.routerUrl === undefined) return this.#planeWithoutRouter(target);
    const router = new RouterPlane(this.#routerPlane((port) => routerHeaders(target, port)));
    return new SparePlane(router, () => this.#planeWithoutRouter(target));
  }

  #planeWithoutRouter(target: PlaneTarget): DataPlane {
    const tunnel = { open: () => this.#tunnelPlane(target), probeTimeoutMs: tunnelProbeMs };
    const direct = { open: () => directPlane(target), probeTimeoutMs: directProbeMs };
    // Network policies may keep other pods out, and an image of the user's may have no daemon: each way is tried once.
    return new FallbackPlane({
      ready: (signal) => target.findPod(signal),
      ways: this.#parts.isInCluster ? [direct, tunnel] : [tunnel],
      last: () => this.#execPlane(target),
    });
  }

  openRouter(): DataPlane {
    return this.#routerPlane(() => ({}));
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

  #routerPlane(headersFor: (port: number) => Readonly<Record<string, string>>): DataPlane {
    const { credentials, routerCa, routerUrl = "" } = this.#parts;
    const url = new URL(routerUrl);
    // The local router speaks TLS and cleartext on one port; credentials only ever travel by TLS.
    if (this.kind === "local") url.protocol = "https:";
    const isSecure = url.protocol === "https:";
    const own = { ...credentials, server: url.origin, ...(routerCa !== undefined && { ca: routerCa }) };
    const address = { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port || (isSecure ? 443 : 80)) };
    return new HttpPlane({
      locate: () => Promise.resolve(address),
      ...(isSecure && { tls: tlsOptions(own) }),
      headers: async (port) => ({ ...headersFor(port), ...(await credentials.authorize?.()) }),
    });
  }

  #tunnelPlane({ namespace, findPod }: PlaneTarget): DataPlane {
    const { transport } = this.client;
    return new HttpPlane({
      // The address only keeps connections to different ports apart.
      locate: (port) => Promise.resolve({ host: "localhost", port }),
      connect: async (port) => openPortForward({ transport, namespace, port, pod: (await findPod()).name }),
    });
  }

  #execPlane({ namespace, findPod }: PlaneTarget): DataPlane {
    return new ExecPlane({ transport: this.client.transport, namespace, findPod, newId: randomKey });
  }
}

function directPlane({ findPod }: PlaneTarget): DataPlane {
  return new HttpPlane({
    locate: async (port) => {
      const { addresses } = await findPod();
      return { host: addresses[0] ?? "", port };
    },
  });
}
