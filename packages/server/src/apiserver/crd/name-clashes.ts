import type { JsonObject } from "@agent-sandbox/api";
import { listAt, stringAt } from "../json/json.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";

/** What became of the names a CustomResourceDefinition asks for. */
export interface NameReview {
  /** The names that no other kind of the group has. */
  readonly accepted: JsonObject;
  /** Kubernetes' reason and message for the last clash found; undefined when there is none. */
  readonly clash: { readonly reason: string; readonly message: string } | undefined;
}

/** Compares the names of a CRD with those of the other kinds of its group. */
export function reviewNames(names: JsonObject, others: readonly ResourceDefinition[]): NameReview {
  const resources = new Set(
    others.flatMap(({ resource, singular, shortNames }) => [resource, singular, ...shortNames]),
  );
  const kinds = new Set(others.flatMap(({ kind, listKind }) => [kind, listKind]));
  const accepted: JsonObject = { ...names };
  let clash: NameReview["clash"];
  const check = (field: string, taken: ReadonlySet<string>): void => {
    const name = stringAt(names, field) ?? "";
    if (name === "" || !taken.has(name)) return;
    delete accepted[field];
    const reason = `${field[0]?.toUpperCase() ?? ""}${field.slice(1)}Conflict`;
    clash = { reason, message: `${JSON.stringify(name)} is already in use` };
  };
  check("plural", resources);
  check("singular", resources);
  const shortNames = listAt(names, "shortNames").map(String);
  const taken = shortNames.filter((name) => resources.has(name));
  if (taken.length > 0) {
    accepted["shortNames"] = shortNames.filter((name) => !resources.has(name));
    clash = {
      reason: "ShortNamesConflict",
      message: taken.map((name) => `${JSON.stringify(name)} is already in use`).join(", "),
    };
  }
  check("kind", kinds);
  check("listKind", kinds);
  return { accepted, clash };
}
