import { FetchPlane, type FetchPlaneOptions } from "./plane/fetch-plane.ts";
import { RouterPlane } from "./plane/router-plane.ts";
import { SandboxConnection } from "./sandbox-connection.ts";

/** Connects to a sandbox through a router with the platform's `fetch`; nothing here needs Node. */
export function connectThroughRouter(options: FetchPlaneOptions): SandboxConnection {
  return new SandboxConnection({ ...options.target, plane: new RouterPlane(new FetchPlane(options)) });
}
