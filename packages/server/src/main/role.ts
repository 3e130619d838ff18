import { readFileSync } from "node:fs";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import type { EngineConfig } from "./engine-config.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { dropPrivileges, type RoleName, type RoleUser, type RoleUsers } from "./role-user.ts";

/** What every role's configuration says; the rest of it is the role's own. */
export interface RoleConfig extends Pick<EngineConfig, "dataDir" | "logLevel"> {
  readonly users: Partial<RoleUsers>;
}

/** What a role of the engine works with. */
export interface RoleContext<C extends RoleConfig = EngineConfig> {
  readonly config: C;
  readonly layout: Layout;
  readonly logger: Logger;
  /** Who the role is once it has given up root. */
  readonly user: RoleUser;
  /** Aborts when the role has to end. */
  readonly signal: AbortSignal;
}

/** A running role; `stop` resolves when all it started has ended. */
export interface Role {
  /** What the role reports to the supervisor, such as addresses. */
  readonly facts?: object;
  /** What the supervisor hands to the other roles; see handed-credentials.ts. */
  readonly credentials?: object;
  stop(): Promise<void>;
}

/** The variable that names the file with the engine's configuration. */
export const configVariable = "AGENT_SANDBOX_ENGINE_CONFIG";

/**
 * Runs one role as the main program of this process: gives up root, starts it, tells the supervisor that it is ready and
 * with which facts, and ends with the supervisor, whichever way that one goes. With `keepRoot` the role gives it up itself.
 */
export async function runRole<C extends RoleConfig = EngineConfig>(
  name: RoleName,
  start: (context: RoleContext<C>) => Promise<Role>,
  { keepRoot = false } = {},
): Promise<void> {
  const file = process.env[configVariable];
  if (file === undefined) throw new Error(`${configVariable} is not set; start the engine with agent-sandbox up`);
  const config = JSON.parse(readFileSync(file, "utf8")) as C;
  const logger = createLogger({ component: name, level: config.logLevel });
  const user = config.users[name];
  if (user === undefined) throw new Error(`${file} names no user for ${name}`);
  if (!keepRoot) dropPrivileges(user);
  process.title = `agent-sandbox ${name}`;

  // Before the start is complete there is nothing to end in order: a signal, or the loss of the supervisor, ends the process at once.
  const giveUp = (): never => process.exit(1);
  process.once("disconnect", giveUp);
  if (process.connected === false) giveUp();
  const ending = new AbortController();
  const role = await start({ config, layout: layoutOf(config.dataDir), logger, user, signal: ending.signal });
  let isEnding = false;
  const end = (why: string): void => {
    if (isEnding) return;
    isEnding = true;
    logger.info({ why }, "ending");
    ending.abort(new Error(why));
    role.stop().then(
      () => process.exit(0),
      (error: unknown) => {
        logger.error({ err: error }, "did not end cleanly");
        process.exit(1);
      },
    );
  };
  process.off("disconnect", giveUp);
  process.once("SIGTERM", () => end("asked to end"));
  process.once("SIGINT", () => end("interrupted"));
  // The supervisor is gone, perhaps killed: a role without one would meet its successor on the same sockets.
  process.once("disconnect", () => end("the supervisor is gone"));
  process.send?.({ ready: true, facts: role.facts ?? {}, credentials: role.credentials });
}
