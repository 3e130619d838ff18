// Started by start-guard.ts before an engine becomes another version, as a process of its own that the other version does not know of.
import type { ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { createLogger } from "../telemetry/logger.ts";
import { becomeProgram } from "./go-back.ts";
import { layoutOf } from "./layout.ts";
import { guardSwitch } from "./switch-guard.ts";

/** What the process gets. */
export interface GuardRequest {
  readonly dataDir: string;
  readonly logLevel: string;
  readonly supervisor: ProcessIdentity;
}

const { dataDir, logLevel, supervisor } = JSON.parse(process.argv[2] ?? "") as GuardRequest;
const logger = createLogger({ component: "switch-guard", level: logLevel });
const back = await guardSwitch({ layout: layoutOf(dataDir), logger, supervisor });
if (back !== undefined) becomeProgram(back, process.env);
