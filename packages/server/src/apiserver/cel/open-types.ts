interface CheckedNode {
  leftStaticType?: { readonly kind?: string } | undefined;
  rightStaticType?: { readonly kind?: string } | undefined;
}

/**
 * Makes operators look at the values they get where checking found only a type variable, as for what an optional holds:
 * the engine takes the variable for a type and finds that every overload fits it.
 */
export function forgetOpenTypes(root: object): void {
  const seen = new Set<object>();
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null || seen.has(value)) return;
    seen.add(value);
    const node = value as CheckedNode;
    if (node.leftStaticType?.kind === "param") node.leftStaticType = undefined;
    if (node.rightStaticType?.kind === "param") node.rightStaticType = undefined;
    for (const child of Array.isArray(value) ? value : Object.values(value)) visit(child);
  };
  visit(root);
}
