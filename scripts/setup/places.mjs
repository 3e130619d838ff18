// Where set-up reads from and writes to.
import path from "node:path";

/** The root of the checkout. */
export const rootDir = path.resolve(import.meta.dirname, "../..");

/** What set-up notes about this checkout; gone with node_modules, as it must be. */
export const stateDir = path.join(rootDir, "node_modules/.agent-sandbox");

/** Shared by all checkouts of one user; every entry is keyed by what it was made from. */
export const cacheDir = path.resolve(
  process.env.AGENT_SANDBOX_CACHE ||
    // Without HOME the set-up ends before this is used.
    path.join(process.env.XDG_CACHE_HOME || path.join(process.env.HOME ?? "/", ".cache"), "agent-sandbox"),
);
