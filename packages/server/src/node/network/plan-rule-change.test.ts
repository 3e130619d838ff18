import { expect, test } from "vitest";
import { changedRules } from "../host/fake-rules.ts";
import type { EndpointRules, RuleSet } from "../host/ruleset.ts";
import { planRuleChange } from "./plan-rule-change.ts";

const pod = (number: number): EndpointRules => ({
  slot: number,
  address: `10.200.0.${number}`,
  ingress: [{ groups: ["aa"] }],
  egress: [{}],
});

function rulesOf(numbers: readonly number[], more: Partial<RuleSet> = {}): RuleSet {
  const addresses = numbers.map((number) => pod(number).address);
  return { endpoints: numbers.map(pod), gatewayPorts: [], sleeping: [], groups: [{ id: "aa", addresses }], ...more };
}

test("planRuleChange: the same rules need no change", () => {
  expect(planRuleChange(rulesOf([1, 2]), rulesOf([1, 2]))).toBeUndefined();
});

test("planRuleChange: one more sandbox is said alone, however many there are", () => {
  const many = Array.from({ length: 300 }, (_each, index) => index + 1);
  expect(planRuleChange(rulesOf(many), rulesOf([...many, 301]))).toEqual({
    endpoints: [pod(301)],
    sleeping: [],
    removed: [],
    groups: [{ id: "aa", added: ["10.200.0.301"], removed: [] }],
    removedGroups: [],
  });
});

test("planRuleChange: who falls asleep is moved, not removed", () => {
  const asleep = { address: pod(2).address, ingress: [] };
  const after = { ...rulesOf([1]), sleeping: [asleep], groups: rulesOf([1, 2]).groups ?? [] };
  expect(planRuleChange(rulesOf([1, 2]), after)).toMatchObject({ endpoints: [], sleeping: [asleep], removed: [] });
});

test.each<[string, RuleSet, RuleSet]>([
  ["nobody to some", rulesOf([]), rulesOf([1, 2])],
  ["some to others", rulesOf([1, 2]), rulesOf([2, 3])],
  ["some to nobody", rulesOf([1, 2]), rulesOf([], { groups: [] })],
  ["a policy comes", rulesOf([1], { groups: [] }), rulesOf([1], { groups: [{ id: "bb", addresses: [] }] })],
  ["a rule changes", rulesOf([1]), { ...rulesOf([1]), endpoints: [{ ...pod(1), held: true }] }],
])("planRuleChange: what it plans leads from one to the other: %s", (_title, before, after) => {
  const plan = planRuleChange(before, after);
  expect(plan).toBeDefined();
  if (plan === undefined) return;
  const reached = changedRules({ ...before, revision: "1" }, { ...plan, base: "1", revision: "2" });
  expect(planRuleChange(reached, after)).toBeUndefined();
});
