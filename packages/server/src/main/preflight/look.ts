import type { ListenAddress } from "../engine-config.ts";
import type { EngineErrorCode } from "../engine-error.ts";
import type { Layout } from "../layout.ts";
import type { LimitFlags } from "../limit-flags.ts";

/** An address that an engine is to listen on, and the flag that says so. */
export interface Listener {
  readonly flag: string;
  readonly address: ListenAddress;
}

/** What is to be started; the checks ask whether this machine can. */
export interface StartQuestion {
  readonly layout: Layout;
  /** Empty: no address is looked at. */
  readonly listeners: readonly Listener[];
  readonly limits: LimitFlags;
  readonly nowMs: number;
}

/** What a look found. `warning`: sandboxes work, and something is worse than it could be. */
export interface Look {
  readonly verdict: "ok" | "warning" | "broken";
  readonly detail: string;
  /** What to do about it: a clause that begins with a verb, without a full stop. */
  readonly advice?: string;
  /** For `broken`: what kind of mistake it is. */
  readonly code?: EngineErrorCode;
}

/** One thing that must be so before an engine starts; a look that throws is broken. It changes nothing on the machine. */
export interface StartCheck {
  readonly title: string;
  readonly look: (question: StartQuestion) => Promise<Look> | Look;
}

/** A look that found nothing wrong. */
export function ok(detail: string): Look {
  return { verdict: "ok", detail };
}

/** A look that found why no engine can start. */
export function broken(code: EngineErrorCode, detail: string, advice: string): Look {
  return { verdict: "broken", code, detail, advice };
}
