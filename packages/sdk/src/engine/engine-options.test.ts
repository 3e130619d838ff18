import { expect, test } from "vitest";
import { type ChoiceQuestion, chooseEngine } from "./engine-options.ts";

const nothing: ChoiceQuestion = { options: {}, env: {}, hasServiceAccount: false, homeDir: "/home/a" };
const inCluster = { KUBERNETES_SERVICE_HOST: "10.0.0.1", KUBERNETES_SERVICE_PORT: "443" };

test("chooseEngine: an option wins over everything", () => {
  const env = { AGENT_SANDBOX_KUBECONFIG: "/env", ...inCluster };
  const chosen = chooseEngine({ ...nothing, options: { kubeconfig: "/opt" }, env, hasServiceAccount: true });
  expect(chosen).toEqual({ kind: "kubeconfig", path: "/opt" });
});

test("chooseEngine: a data directory as an option wins over the environment", () => {
  const chosen = chooseEngine({ ...nothing, options: { dataDir: "/d" }, env: { AGENT_SANDBOX_KUBECONFIG: "/env" } });
  expect(chosen).toEqual({ kind: "local", dataDir: "/d" });
});

test("chooseEngine: the environment's kubeconfig wins over the cluster around", () => {
  const env = { AGENT_SANDBOX_KUBECONFIG: "/env", AGENT_SANDBOX_CONTEXT: "c", ...inCluster };
  const chosen = chooseEngine({ ...nothing, env, hasServiceAccount: true });
  expect(chosen).toEqual({ kind: "kubeconfig", path: "/env", context: "c" });
});

test("chooseEngine: a context alone is one of the user's own kubeconfig", () => {
  const chosen = chooseEngine({ ...nothing, env: { AGENT_SANDBOX_CONTEXT: "c" } });
  expect(chosen).toEqual({ kind: "kubeconfig", path: "/home/a/.kube/config", context: "c" });
});

test("chooseEngine: the cluster around wins over this machine's engine", () => {
  expect(chooseEngine({ ...nothing, env: inCluster, hasServiceAccount: true })).toMatchObject({ kind: "in-cluster" });
});

test("chooseEngine: without a token there is no cluster around", () => {
  expect(chooseEngine({ ...nothing, env: inCluster })).toMatchObject({ kind: "local" });
});

test("chooseEngine: KUBECONFIG is never used unasked", () => {
  const chosen = chooseEngine({ ...nothing, env: { KUBECONFIG: "/somebody/elses" } });
  expect(chosen).toEqual({ kind: "local", dataDir: "/var/lib/agent-sandbox" });
});
