import { expect, test } from "vitest";
import { FakeHost } from "../host/fake-host.ts";
import { HostError } from "../host/host-error.ts";
import type { RuleChange, RuleSet } from "../host/ruleset.ts";
import { RuleKeeper } from "./rule-keeper.ts";

const pod = (number: number) => ({ slot: number, address: `10.200.0.${number}`, ingress: [], egress: [{}] });

/** A keeper of as many sandboxes as `pods` has, and what its host was asked. */
async function keeperWorld() {
  const host = new FakeHost({ programs: {}, now: () => "2026-01-01T00:00:00Z" });
  await host.ensureNetwork({ cidr: "10.200.0.0/16", gateway: "10.200.0.1" });
  const asked: string[] = [];
  const [applyRules, changeRules] = [host.applyRules.bind(host), host.changeRules.bind(host)];
  host.applyRules = (rules: RuleSet) => {
    // The fake makes a change by applying what it leads to.
    if (asked.at(-1) !== `change to ${rules.revision ?? ""}`) asked.push(`all of ${rules.revision ?? ""}`);
    return applyRules(rules);
  };
  host.changeRules = (change: RuleChange) => {
    asked.push(`change to ${change.revision}`);
    return changeRules(change);
  };
  const pods: number[] = [];
  let revision = 0;
  const keeper = new RuleKeeper({
    host,
    compile: () => ({ endpoints: pods.map(pod), gatewayPorts: [], sleeping: [] }),
    newRevision: () => String((revision += 1)),
  });
  const addresses = (): string[] | undefined => host.rules?.endpoints.map(({ address }) => address);
  return { host, keeper, pods, asked, addresses };
}

test("RuleKeeper: everything at first, then what changes, then nothing where nothing does", async () => {
  const { keeper, pods, asked, addresses } = await keeperWorld();
  pods.push(1);
  await keeper.apply();
  pods.push(2);
  await keeper.apply();
  await keeper.apply();
  expect(asked).toEqual(["all of 1", "change to 2"]);
  expect(addresses()).toEqual(["10.200.0.1", "10.200.0.2"]);
});

test("RuleKeeper: a host that came back and knows nothing is told everything, in the same call", async () => {
  const { host, keeper, pods, asked, addresses } = await keeperWorld();
  await keeper.apply();
  host.rules = undefined;
  pods.push(1);
  await keeper.apply();
  expect(asked.at(-1)).toBe("change to 2");
  expect(addresses()).toEqual(["10.200.0.1"]);
  pods.push(2);
  await keeper.apply();
  expect(addresses()).toEqual(["10.200.0.1", "10.200.0.2"]);
});

test("RuleKeeper: after a change that failed everything is said anew", async () => {
  const { host, keeper, pods, asked, addresses } = await keeperWorld();
  await keeper.apply();
  pods.push(1);
  const changeRules = host.changeRules.bind(host);
  host.changeRules = () => Promise.reject(new HostError("rules-rejected", "nft: no"));
  await expect(keeper.apply()).rejects.toMatchObject({ code: "rules-rejected" });
  host.changeRules = changeRules;
  await keeper.apply();
  expect(asked).toEqual(["all of 1", "all of 3"]);
  expect(addresses()).toEqual(["10.200.0.1"]);
});
