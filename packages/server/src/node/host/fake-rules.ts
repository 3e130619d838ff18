import type { RuleChange, RuleGroup, RuleSet } from "./ruleset.ts";

/** The rule set that a change leads to, as the real host's table has it. */
export function changedRules(rules: RuleSet, change: RuleChange): RuleSet {
  const said = new Set([...change.endpoints, ...change.sleeping].map(({ address }) => address));
  const stays = ({ address }: { readonly address: string }): boolean =>
    !said.has(address) && !change.removed.includes(address);
  const groups = new Map((rules.groups ?? []).map((group) => [group.id, group]));
  for (const { id, added, removed } of change.groups) {
    const left = (groups.get(id)?.addresses ?? []).filter((address) => !removed.includes(address));
    groups.set(id, { id, addresses: [...new Set([...left, ...added])].toSorted() } satisfies RuleGroup);
  }
  for (const id of change.removedGroups) groups.delete(id);
  return {
    ...rules,
    revision: change.revision,
    endpoints: [...rules.endpoints.filter(stays), ...change.endpoints],
    sleeping: [...rules.sleeping.filter(stays), ...change.sleeping],
    groups: [...groups.values()],
  };
}
