import type { ExtensionCaches } from "./caches.ts";
import type { SandboxContext } from "./sandbox-lifecycle/context.ts";

/** What template, pool and claim controllers work with. */
export interface ExtensionContext extends SandboxContext {
  readonly extensions: ExtensionCaches;
}
