import { type NetworkPolicy, networkPolicies } from "@agent-sandbox/api";
import { afterEach, expect, test } from "vitest";
import { HostError } from "../../packages/server/src/node/host/host-error.ts";
import { isReady, NodeWorld } from "./node-world.ts";

let world: NodeWorld | undefined;

afterEach(async () => {
  await world?.[Symbol.asyncDispose]();
  world = undefined;
});

test("node network: rules that the host could not take are applied as soon as it can", async () => {
  world = await NodeWorld.start();
  const { fake, client } = world;
  await world.createPod("guarded", { containers: [{ name: "main", image: "host", command: ["sleep", "infinity"] }] });
  await world.podWhere("guarded", isReady);
  const before = fake.rules?.endpoints[0]?.ingress;
  expect(before).toEqual([]);
  let refusals = 0;
  const refuse = (): void => {
    if (refusals >= 2) return;
    refusals += 1;
    throw new HostError("unavailable", "the helper is away");
  };
  const [applyRules, changeRules] = [fake.applyRules.bind(fake), fake.changeRules.bind(fake)];
  fake.applyRules = async (rules) => (refuse(), applyRules(rules));
  fake.changeRules = async (change) => (refuse(), changeRules(change));
  const policy: NetworkPolicy = {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "open", namespace: "default" },
    spec: { podSelector: {}, policyTypes: ["Ingress"], ingress: [{}] },
  };
  await client.create(networkPolicies, policy);
  await expect.poll(() => fake.rules?.endpoints[0]?.ingress, { timeout: 15_000 }).toEqual([{}]);
  expect(refusals).toBe(2);
});
