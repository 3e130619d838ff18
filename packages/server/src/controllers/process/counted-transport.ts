import type { Transport } from "@agent-sandbox/kube";
import type { ControllerMetrics } from "../controller-metrics.ts";

/** Counts requests as client-go does: a request without an answer has the code `<error>`. There is one server, whatever its address. */
export function countedTransport(transport: Transport, { requests }: Pick<ControllerMetrics, "requests">): Transport {
  const host = "kubernetes";
  return {
    request: async (request) => {
      const { method } = request;
      try {
        const response = await transport.request(request);
        requests.inc({ code: String(response.status), method, host });
        return response;
      } catch (error) {
        requests.inc({ code: "<error>", method, host });
        throw error;
      }
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}
