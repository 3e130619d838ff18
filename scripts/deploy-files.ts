import { readFileSync } from "node:fs";
import path from "node:path";
import { parse } from "yaml";
import { rootDir } from "./checkout.ts";

/** The files of deploy/kubernetes, without their ending, in the order in which they are applied, as its kustomization names them; the CRDs are not among them. */
export function deployFiles(): readonly string[] {
  const text = readFileSync(path.join(rootDir, "deploy/kubernetes/kustomization.yaml"), "utf8");
  const { resources } = parse(text) as { readonly resources: readonly string[] };
  return resources.flatMap((name) => (name.endsWith(".yaml") ? [name.slice(0, -".yaml".length)] : []));
}
