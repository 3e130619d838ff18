import { isDeepStrictEqual } from "node:util";
import type { RuleChange, RuleGroup, RuleSet } from "../host/ruleset.ts";

/** What leads from one rule set to another, or undefined if nothing does: then they are the same. Gateway ports never change. */
export function planRuleChange(before: RuleSet, after: RuleSet): Omit<RuleChange, "base" | "revision"> | undefined {
  const endpoints = changed(before.endpoints, after.endpoints);
  const sleeping = changed(before.sleeping, after.sleeping);
  const there = new Set([...after.endpoints, ...after.sleeping].map(({ address }) => address));
  const removed = [...before.endpoints, ...before.sleeping]
    .map(({ address }) => address)
    .filter((address) => !there.has(address));
  const change = { endpoints, sleeping, removed, ...changedGroups(before.groups ?? [], after.groups ?? []) };
  return Object.values(change).every((list) => list.length === 0) ? undefined : change;
}

function changed<Entry extends { readonly address: string }>(
  before: readonly Entry[],
  after: readonly Entry[],
): readonly Entry[] {
  const known = new Map(before.map((entry) => [entry.address, entry]));
  return after.filter((entry) => !isDeepStrictEqual(entry, known.get(entry.address)));
}

function changedGroups(
  before: readonly RuleGroup[],
  after: readonly RuleGroup[],
): Pick<RuleChange, "groups" | "removedGroups"> {
  const known = new Map(before.map(({ id, addresses }) => [id, new Set(addresses)]));
  const groups = after.flatMap(({ id, addresses }) => {
    const members = known.get(id);
    const left = new Set(addresses);
    const added = addresses.filter((address) => members?.has(address) !== true);
    const removed = [...(members ?? [])].filter((address) => !left.has(address));
    return members !== undefined && added.length + removed.length === 0 ? [] : [{ id, added, removed }];
  });
  const ids = new Set(after.map(({ id }) => id));
  return { groups, removedGroups: before.map(({ id }) => id).filter((id) => !ids.has(id)) };
}
