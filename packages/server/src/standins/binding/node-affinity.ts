import type { Node, NodeSelectorRequirement, NodeSelectorTerm, Pod } from "@agent-sandbox/api";

/** Whether a node meets a Pod's node selector and its required node affinity. */
export function matchesNode({ spec }: Pod, node: Node): boolean {
  const labels = node.metadata.labels ?? {};
  if (!Object.entries(spec?.nodeSelector ?? {}).every(([key, value]) => labels[key] === value)) return false;
  const terms = spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  return terms === undefined || terms.some((term) => matchesTerm(term, node));
}

/** A term without any requirement matches nothing, as in Kubernetes. */
function matchesTerm({ matchExpressions = [], matchFields = [] }: NodeSelectorTerm, node: Node): boolean {
  if (matchExpressions.length === 0 && matchFields.length === 0) return false;
  const fields: Record<string, string> = { "metadata.name": node.metadata.name };
  return (
    matchExpressions.every((requirement) => meets(requirement, node.metadata.labels ?? {})) &&
    matchFields.every((requirement) => meets(requirement, fields))
  );
}

function meets(
  { key, operator, values = [] }: NodeSelectorRequirement,
  labels: Readonly<Record<string, string>>,
): boolean {
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
    case "Gt":
      return value !== undefined && Number(value) > Number(values[0]);
    case "Lt":
      return value !== undefined && Number(value) < Number(values[0]);
    default:
      return false;
  }
}
