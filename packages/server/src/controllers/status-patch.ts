import { semanticEqual } from "@agent-sandbox/api";

/**
 * The merge patch that turns `before` into `after`, one level deep, or undefined when they mean the same. Cleared fields
 * become null; a field that differs is sent whole, lists included.
 */
export function statusPatch(before: object | undefined, after: object): Record<string, unknown> | undefined {
  const old: Record<string, unknown> = { ...before };
  const wanted: Record<string, unknown> = { ...after };
  const patch: Record<string, unknown> = {};
  for (const key of new Set([...Object.keys(old), ...Object.keys(wanted)])) {
    if (semanticEqual(old[key], wanted[key])) continue;
    patch[key] = isEmpty(wanted[key]) ? null : wanted[key];
  }
  return Object.keys(patch).length === 0 ? undefined : patch;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}
