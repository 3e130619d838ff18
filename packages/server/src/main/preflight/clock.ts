import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Layout } from "../layout.ts";
import { broken, type Look, ok, type StartQuestion } from "./look.ts";

/** No version of the engine is older: a clock that says less was never set, and certificates made by it would be over when it is. */
const clockFloorMs = Date.UTC(2026, 0, 1);

/** Certificates bear times: with a clock before them, no part of the engine believes another. */
export function lookAtClock({ layout, nowMs }: StartQuestion): Look {
  const shown = new Date(nowMs).toISOString().slice(0, 16);
  const advice = "set the clock, for example with: date --set TIME";
  if (nowMs < clockFloorMs) return broken("failed", `this machine's clock says ${shown}, which is in the past`, advice);
  const madeMs = authorityMadeMs(layout);
  if (madeMs === undefined || madeMs <= nowMs) return ok(`${shown} UTC`);
  const made = new Date(madeMs).toISOString().slice(0, 16);
  return broken(
    "failed",
    `this machine's clock says ${shown}, before the engine's certificates were made (${made})`,
    advice,
  );
}

/** From when on the authority of an engine that was here before is valid. Root's copy is read: what a role owns, root does not open. */
function authorityMadeMs({ adminKubeconfig }: Layout): number | undefined {
  try {
    const [, encoded = ""] = /certificate-authority-data: (\S+)/.exec(readFileSync(adminKubeconfig, "utf8")) ?? [];
    return Date.parse(new X509Certificate(Buffer.from(encoded, "base64")).validFrom);
  } catch {
    // No engine was here, or what it left cannot be read and is written anew.
    return undefined;
  }
}
