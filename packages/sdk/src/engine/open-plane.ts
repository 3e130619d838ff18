import { tlsOptions } from "@agent-sandbox/kube/tls-connection";
import type { DataPlane } from "../plane/data-plane.ts";
import { FallbackPlane } from "../plane/fallback-plane.ts";
import { HttpPlane } from "../plane/http-plane.ts";
import { RouterPlane, routerHeaders } from "../plane/router-plane.ts";
import { SparePlane } from "../plane/spare-plane.ts";
import { randomKey } from "../process/random-key.ts";
import { ExecPlane } from "../tunnel/exec-plane.ts";
import { openPortForward } from "../tunnel/port-forward.ts";
import type { ClusterEngineParts } from "./cluster-engine-parts.ts";
import type { PlaneTarget } from "./engine.ts";

/** A network policy drops packets and sends no refusal; a way that is open answers within a round trip. */
const directProbeMs = 1_500;
/** A tunnel reports a port without a listener at once; only a very busy machine takes seconds to report anything. */
const tunnelProbeMs = 20_000;

/** The way to one sandbox: its router, or a tunnel, its address, or `pods/exec`. */
export function openPlane(parts: ClusterEngineParts, target: PlaneTarget): DataPlane {
  if (!target.hasDaemon) return execPlane(parts, target);
  if (parts.routerUrl === undefined) return planeWithoutRouter(parts, target);
  const router = new RouterPlane(openRouter(parts, (port) => routerHeaders(target, port)));
  return new SparePlane(router, () => planeWithoutRouter(parts, target));
}

/** The router itself. */
export function openRouter(
  { kind, credentials, routerCa, routerUrl = "" }: ClusterEngineParts,
  headersFor: (port: number) => Readonly<Record<string, string>>,
): DataPlane {
  const url = new URL(routerUrl);
  // The local router speaks TLS and cleartext on one port; credentials only ever travel by TLS.
  if (kind === "local") url.protocol = "https:";
  const isSecure = url.protocol === "https:";
  const own = { ...credentials, server: url.origin, ...(routerCa !== undefined && { ca: routerCa }) };
  const address = { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port || (isSecure ? 443 : 80)) };
  return new HttpPlane({
    locate: () => Promise.resolve(address),
    ...(isSecure && { tls: tlsOptions(own) }),
    headers: async (port) => ({ ...headersFor(port), ...(await credentials.authorize?.()) }),
  });
}

function planeWithoutRouter(parts: ClusterEngineParts, target: PlaneTarget): DataPlane {
  const tunnel = { open: () => tunnelPlane(parts, target), probeTimeoutMs: tunnelProbeMs };
  const direct = { open: () => directPlane(target), probeTimeoutMs: directProbeMs };
  // Network policies may keep other pods out, and an image of the user's may have no daemon: each way is tried once.
  return new FallbackPlane({
    ready: (signal) => target.findPod(signal),
    ways: parts.isInCluster ? [direct, tunnel] : [tunnel],
    last: () => execPlane(parts, target),
  });
}

function tunnelPlane({ client }: ClusterEngineParts, { namespace, findPod }: PlaneTarget): DataPlane {
  const { transport } = client;
  return new HttpPlane({
    // The address only keeps connections to different ports apart.
    locate: (port) => Promise.resolve({ host: "localhost", port }),
    connect: async (port) => openPortForward({ transport, namespace, port, pod: (await findPod()).name }),
  });
}

function execPlane({ client }: ClusterEngineParts, { namespace, findPod }: PlaneTarget): DataPlane {
  return new ExecPlane({ transport: client.transport, namespace, findPod, newId: randomKey });
}

function directPlane({ findPod }: PlaneTarget): DataPlane {
  return new HttpPlane({
    locate: async (port) => {
      const { addresses } = await findPod();
      return { host: addresses[0] ?? "", port };
    },
  });
}
