import { HostError } from "./host-error.ts";
import type { AllowRule, RuleChange, RuleGroup, RuleSet } from "./ruleset.ts";

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

/** Refuses a range that is none. */
export function assertAllows(allows: readonly AllowRule[]): void {
  for (const block of allows.flatMap((allow) => allow.blocks ?? [])) {
    for (const cidr of [block.cidr, ...(block.except ?? [])]) {
      if (!isRange(cidr)) throw new HostError("invalid-argument", `cidr: "${cidr}" is not an IPv4 range`);
    }
  }
}

/** Whether a text is an IPv4 address. */
export function isAddress(text: string): boolean {
  const parts = text.split(".");
  return parts.length === 4 && parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256);
}

/** Whether a text is an IPv4 range. */
export function isRange(text: string): boolean {
  const [address, bits, ...rest] = text.split("/");
  if (address === undefined || bits === undefined || rest.length > 0 || !isAddress(address)) return false;
  return /^\d{1,2}$/.test(bits) && Number(bits) <= 32;
}
