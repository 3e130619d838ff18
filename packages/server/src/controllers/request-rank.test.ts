import { expect, test } from "vitest";
import { rankOf } from "./request-rank.ts";

const core = "/apis/agents.x-k8s.io/v1beta1/namespaces/n/sandboxes";
const extensions = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/n";

test.each([
  ["GET", "/api/v1/pods?watch=true&resourceVersion=1", "free"],
  ["GET", "/api/v1/pods?limit=500", "free"],
  ["PATCH", `${extensions}/sandboxclaims/c`, "urgent"],
  ["PATCH", `${extensions}/sandboxclaims/c/status`, "urgent"],
  ["PATCH", `${core}/s`, "urgent"],
  ["PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "urgent"],
  ["POST", core, "background"],
  ["PATCH", `${core}/s/status`, "background"],
  ["POST", "/api/v1/namespaces/n/pods", "background"],
  ["PATCH", "/api/v1/namespaces/n/pods/s", "background"],
  ["POST", "/apis/events.k8s.io/v1/namespaces/n/events", "background"],
] as const)("rankOf: %s %s: %s", (method, path, rank) => {
  expect(rankOf({ method, path })).toBe(rank);
});
