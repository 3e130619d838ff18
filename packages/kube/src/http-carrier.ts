import type { KubeRequest, KubeResponse } from "./transport.ts";

/** One way of carrying requests over connections. */
export interface HttpCarrier {
  request(request: KubeRequest): Promise<KubeResponse>;
  close(): void;
}
