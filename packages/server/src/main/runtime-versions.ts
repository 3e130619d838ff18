import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { RuntimeVersionUse } from "../node/host/container.ts";
import { HostClient } from "../node/host/host-client.ts";
import type { Logger } from "../telemetry/logger.ts";
import { type Advisory, advisoriesFor, type Installed, readAdvisories } from "./advisories.ts";
import { layoutOf } from "./layout.ts";
import { findPrograms } from "./programs.ts";

const run = promisify(execFile);

/** The pinned `runsc`, and the distribution's `runc` where the trusted tier is asked about too. */
export async function runtimeVersions({ withRunc = false } = {}): Promise<Record<string, string>> {
  const { runsc: _, runscVersion, runc } = findPrograms();
  if (!withRunc || runc === undefined) return { runsc: runscVersion };
  const { stdout } = await run(runc, ["--version"]);
  return { runsc: runscVersion, runc: /version (\S+)/.exec(stdout)?.[1] ?? stdout };
}

/** Writes a warning for every advisory about a runtime that this engine starts sandboxes with. */
export async function warnOfAdvisories(logger: Logger, options: { readonly withRunc: boolean }): Promise<void> {
  const list = readAdvisories();
  for (const [component, version] of Object.entries(await runtimeVersions(options)))
    for (const { id, summary } of advisoriesFor(list, { component, version }))
      logger.warn({ advisory: id, component, version }, `the runtime has a known weakness: ${summary}`);
}

/** The builds of runsc that a running engine has, and how many sandboxes each drives. Preconditions: the caller is root. */
export async function runtimeVersionsInUse(dataDir: string): Promise<readonly RuntimeVersionUse[]> {
  const host = new HostClient({ socketPath: layoutOf(dataDir).hostSocket });
  try {
    return (await host.info()).runtimeVersions;
  } finally {
    await host.close();
  }
}

/** One line about the advisories of a version, for people. */
export function describeAdvisories(installed: Installed): {
  readonly found: readonly Advisory[];
  readonly text: string;
} {
  const found = advisoriesFor(readAdvisories(), installed);
  return { found, text: found.map(({ id }) => id).join(", ") };
}
