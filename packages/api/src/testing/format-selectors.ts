import type { parseFieldSelector } from "../field-selector.ts";
import type { parseLabelSelector } from "../label-selector.ts";

type LabelRequirement = ReturnType<typeof parseLabelSelector>[number];
type FieldRequirement = ReturnType<typeof parseFieldSelector>[number];

/** The query form of a selector, sorted by key so that equal selectors print alike. */
export function formatLabelSelector(selector: readonly LabelRequirement[]): string {
  const sorted = [...selector].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return sorted.map(print).join(",");
}

function print(requirement: LabelRequirement): string {
  const { key } = requirement;
  switch (requirement.operator) {
    case "in":
    case "notin": {
      const [only] = requirement.values;
      const sign = requirement.operator === "in" ? "=" : "!=";
      if (requirement.values.length === 1) return `${key}${sign}${only}`;
      return `${key} ${requirement.operator} (${[...requirement.values].sort().join(",")})`;
    }
    case "exists":
      return key;
    case "absent":
      return `!${key}`;
    case "gt":
      return `${key}>${requirement.value}`;
    case "lt":
      return `${key}<${requirement.value}`;
    default:
      return requirement satisfies never;
  }
}

/** The query form of a selector. */
export function formatFieldSelector(selector: readonly FieldRequirement[]): string {
  return selector.map(({ field, operator, value }) => `${field}${operator}${escapeValue(value)}`).join(",");
}

function escapeValue(value: string): string {
  return value.replaceAll(/[\\,=]/g, "\\$&");
}
