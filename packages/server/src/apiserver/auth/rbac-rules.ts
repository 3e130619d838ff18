import type { PolicyRule } from "@agent-sandbox/api";
import type { AuthorizationAttributes, NonResourceAttributes, ResourceAttributes } from "./authorizer.ts";

/** Whether one rule permits the request; the matching of Kubernetes' RBAC, wildcards included. */
export function ruleAllows(rule: PolicyRule, a: AuthorizationAttributes): boolean {
  return a.kind === "resource" ? allowsResource(rule, a) : allowsPath(rule, a);
}

function allowsResource(rule: PolicyRule, a: ResourceAttributes): boolean {
  return (
    matches(rule.verbs, a.verb) &&
    matches(rule.apiGroups, a.group) &&
    matchesResource(rule.resources, a.resource, a.subresource) &&
    matchesName(rule.resourceNames, a.name)
  );
}

function allowsPath(rule: PolicyRule, a: NonResourceAttributes): boolean {
  return matches(rule.verbs, a.verb) && (rule.nonResourceURLs ?? []).some((pattern) => pathMatches(pattern, a.path));
}

function matches(allowed: readonly string[] | undefined, wanted: string): boolean {
  return allowed !== undefined && (allowed.includes(wanted) || allowed.includes("*"));
}

/** `pods/*` is no wildcard in Kubernetes, but `*` and `*` with a named subresource are. */
function matchesResource(allowed: readonly string[] | undefined, resource: string, subresource: string): boolean {
  if (allowed === undefined) return false;
  if (allowed.includes("*")) return true;
  if (subresource === "") return allowed.includes(resource);
  return allowed.includes(`${resource}/${subresource}`) || allowed.includes(`*/${subresource}`);
}

function matchesName(allowed: readonly string[] | undefined, name: string): boolean {
  return allowed === undefined || allowed.length === 0 || allowed.includes(name);
}

/** Whether a rule's path pattern (`*`, `/exact`, `/prefix/*`) covers a path. */
function pathMatches(pattern: string, path: string): boolean {
  if (pattern === "*" || pattern === path) return true;
  return pattern.endsWith("*") && path.startsWith(pattern.slice(0, -1));
}

/** The parts of `wanted` that `granted` does not cover; empty means that the grant adds no right to those the user holds. */
export function uncoveredRules(granted: readonly PolicyRule[], wanted: readonly PolicyRule[]): PolicyRule[] {
  return wanted.flatMap(atomicRules).filter((atom) => !granted.some((rule) => covers(rule, atom)));
}

/** One verb, one group, one resource, one name (or none) at a time: only such a rule can be covered by a single other rule. */
function atomicRules(rule: PolicyRule): PolicyRule[] {
  const resources = product([rule.verbs, rule.apiGroups ?? [], rule.resources ?? [], optional(rule.resourceNames)]).map(
    ([verb, group, resource, name]): PolicyRule => ({
      verbs: [verb ?? ""],
      apiGroups: [group ?? ""],
      resources: [resource ?? ""],
      ...(name === "" || name === undefined ? {} : { resourceNames: [name] }),
    }),
  );
  const paths = product([rule.verbs, rule.nonResourceURLs ?? []]).map(
    ([verb, url]): PolicyRule => ({ verbs: [verb ?? ""], nonResourceURLs: [url ?? ""] }),
  );
  return [...resources, ...paths];
}

function optional(values: readonly string[] | undefined): readonly string[] {
  return values === undefined || values.length === 0 ? [""] : values;
}

function product(lists: readonly (readonly string[])[]): string[][] {
  return lists.reduce<string[][]>((rows, list) => rows.flatMap((row) => list.map((value) => [...row, value])), [[]]);
}

function covers(rule: PolicyRule, atom: PolicyRule): boolean {
  const within = (allowed: readonly string[] | undefined, wanted: readonly string[] | undefined) =>
    matches(allowed, wanted?.[0] ?? "");
  if (!within(rule.verbs, atom.verbs)) return false;
  const url = atom.nonResourceURLs?.[0];
  if (url !== undefined) return (rule.nonResourceURLs ?? []).some((pattern) => pathMatches(pattern, url));
  if (!within(rule.apiGroups, atom.apiGroups)) return false;
  const [resource, subresource] = splitOnce(atom.resources?.[0] ?? "");
  if (!matchesResource(rule.resources, resource, subresource)) return false;
  const name = atom.resourceNames?.[0];
  const names = rule.resourceNames ?? [];
  return names.length === 0 || (name !== undefined && names.includes(name));
}

function splitOnce(resource: string): [string, string] {
  const at = resource.indexOf("/");
  return at < 0 ? [resource, ""] : [resource.slice(0, at), resource.slice(at + 1)];
}

/** A rule as Kubernetes prints it in a refused escalation. */
export function ruleText(rule: PolicyRule): string {
  const parts = [
    ["APIGroups", rule.apiGroups],
    ["Resources", rule.resources],
    ["ResourceNames", rule.resourceNames],
    ["NonResourceURLs", rule.nonResourceURLs],
    ["Verbs", rule.verbs],
  ] as const;
  const texts = parts
    .filter(([, values]) => values !== undefined && values.length > 0)
    .map(([name, values]) => `${name}:${JSON.stringify(values)}`);
  return `{${texts.join(", ")}}`;
}
