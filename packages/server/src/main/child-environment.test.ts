import { expect, test } from "vitest";
import { childEnvironment } from "./child-environment.ts";

test("childEnvironment: what programs need is passed on, and what root keeps for itself is not", () => {
  const passed = { PATH: "/bin", NODE_COMPILE_CACHE: "/c", https_proxy: "http://p", KUBERNETES_SERVICE_HOST: "h" };
  const kept = { AWS_SECRET_ACCESS_KEY: "k", SSH_AUTH_SOCK: "/s", KUBECONFIG: "/root/.kube/config", PATHS: "x" };
  expect(childEnvironment({ ...passed, ...kept })).toEqual(passed);
});
