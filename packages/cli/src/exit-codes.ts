import type { ErrorCode } from "@agent-sandbox/sdk/errors/error-codes.gen";
import type { EngineErrorCode } from "@agent-sandbox/server/main/engine-error";

/** Exit codes of the command; `run` and `exec` pass on the command's own, and use 125 to 127 as shells and container tools do. */
export const exitCodes = {
  ok: 0,
  /** Something failed that has no code of its own below. */
  failed: 1,
  /** The command line makes no sense. */
  usage: 2,
  /** There is no such object. */
  notFound: 3,
  /** No engine is running, or it does not answer. */
  noEngine: 4,
  /** The user may not do that. */
  denied: 5,
  /** It is there already, or changed meanwhile, or its state does not allow it. */
  conflict: 6,
  /** It took too long. */
  timeout: 7,
  /** This engine, or this machine, cannot do that. */
  unsupported: 8,
  /** `verify`, `restore`, `backup --verify`: something did not hold, or could not be shown to. */
  unsound: 9,
  /** `run`, `exec`: the sandbox could not be had, so the command did not run. */
  sandboxFailed: 125,
  /** `run`, `exec`: the command cannot be executed. */
  notExecutable: 126,
  /** `run`, `exec`: there is no such command, or no such working directory. */
  commandNotFound: 127,
  /** Ended by Ctrl-C: 128 and the signal's number. */
  interrupted: 130,
  /** `run`, `exec`: the command ended with its sandbox, as by SIGKILL: 128 and the signal's number. */
  killed: 137,
} as const;

const exitCodeOf: Partial<Record<ErrorCode, number>> = {
  "invalid-argument": exitCodes.usage,
  "not-found": exitCodes.notFound,
  "template-not-found": exitCodes.notFound,
  "warm-pool-not-found": exitCodes.notFound,
  "engine-not-found": exitCodes.noEngine,
  unavailable: exitCodes.noEngine,
  unauthenticated: exitCodes.denied,
  "permission-denied": exitCodes.denied,
  "already-exists": exitCodes.conflict,
  conflict: exitCodes.conflict,
  "sandbox-held": exitCodes.conflict,
  "file-exists": exitCodes.conflict,
  "ready-timeout": exitCodes.timeout,
  "wait-timeout": exitCodes.timeout,
  "request-timeout": exitCodes.timeout,
  "command-timeout": exitCodes.timeout,
  unsupported: exitCodes.unsupported,
  "process-ended": exitCodes.killed,
};

/** The exit code for an SDK error's code. */
export function exitCodeFor(code: ErrorCode): number {
  return exitCodeOf[code] ?? exitCodes.failed;
}

const exitCodeOfEngine: Readonly<Record<EngineErrorCode, number>> = {
  usage: exitCodes.usage,
  denied: exitCodes.denied,
  conflict: exitCodes.conflict,
  unsupported: exitCodes.unsupported,
  failed: exitCodes.failed,
  "no-engine": exitCodes.noEngine,
};

/** The exit code for what keeps an engine of this machine from starting or stopping. */
export function exitCodeOfEngineError(code: EngineErrorCode): number {
  return exitCodeOfEngine[code];
}
