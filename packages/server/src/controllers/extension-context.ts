import type { SandboxContext } from "./sandbox-lifecycle/context.ts";
import type { ExtensionCaches } from "./caches.ts";

/** What template, pool and claim controllers work with. */
export interface ExtensionContext extends SandboxContext {
  readonly extensions: ExtensionCaches;
  readonly random: () => number;
}
