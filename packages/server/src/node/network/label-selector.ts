import type { LabelSelector } from "@agent-sandbox/api";

/** Whether labels satisfy a selector object. Absent selects nothing; empty selects everything. */
export function matchesSelector(
  selector: LabelSelector | undefined,
  labels: Readonly<Record<string, string>> | undefined = {},
): boolean {
  if (selector === undefined) return false;
  const pairs = Object.entries(selector.matchLabels ?? {});
  if (!pairs.every(([key, value]) => labels[key] === value)) return false;
  return (selector.matchExpressions ?? []).every(({ key, operator, values = [] }) => {
    const value = labels[key];
    switch (operator) {
      case "In":
        return value !== undefined && values.includes(value);
      case "NotIn":
        return value === undefined || !values.includes(value);
      case "Exists":
        return value !== undefined;
      case "DoesNotExist":
        return value === undefined;
      default:
        // An operator this code does not know must open nothing.
        return false;
    }
  });
}
