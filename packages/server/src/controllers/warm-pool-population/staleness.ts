import type { Sandbox, SandboxTemplate } from "@agent-sandbox/api";
import { controllerOf, labelKeys, nameHash } from "@agent-sandbox/api";
import { blueprintHash, matchesBlueprint } from "./blueprint.ts";

/** Judges members against one template; remembers verdicts per old hash for as long as it lives, which is one pass. */
export class Staleness {
  readonly #template: SandboxTemplate;
  readonly #refHash: string;
  readonly #hash: string;
  readonly #verdicts = new Map<string, boolean>();

  constructor(template: SandboxTemplate) {
    this.#template = template;
    this.#refHash = nameHash(template.metadata.name);
    this.#hash = blueprintHash(template);
  }

  /** An orphan's labels are not trusted: it is compared in full. */
  isStale(sandbox: Sandbox): boolean {
    const labels = sandbox.metadata.labels ?? {};
    if (labels[labelKeys.templateRefHash] !== this.#refHash) return true;
    if (controllerOf(sandbox) === undefined) return !matchesBlueprint(sandbox, this.#template);
    const hash = labels[labelKeys.templateHash] ?? "";
    if (hash === this.#hash) return false;
    const known = hash === "" ? undefined : this.#verdicts.get(hash);
    if (known !== undefined) return known;
    const stale = !matchesBlueprint(sandbox, this.#template);
    if (hash !== "") this.#verdicts.set(hash, stale);
    return stale;
  }
}
