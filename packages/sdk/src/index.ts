// Classes that only the SDK constructs are exported as types: the modules behind them are loaded by the first call that needs them.
export type * from "./control/create-options.ts";
export type { OpenPort, SandboxMetrics } from "./control/daemon-status.ts";
export type { SandboxInfo, SandboxState } from "./control/sandbox-info.ts";
export type { LogOptions } from "./control/sandbox-logs.ts";
export type { SnapshotInfo, SnapshotStateName } from "./control/snapshot-info.ts";
export * from "./engine/default-engine.ts";
export type { Engine } from "./engine/engine.ts";
export type { EngineOptions } from "./engine/engine-options.ts";
export { type ErrorCode, errorCodes } from "./errors/error-codes.gen.ts";
export { isSandboxError, type Limit, SandboxError, type SandboxErrorOptions } from "./errors/sandbox-error.ts";
export type { FileEvent, FileInfo, FileType, SearchMatch } from "./files/file-info.ts";
export type * from "./files/sandbox-files.ts";
export type { SandboxPath } from "./files/sandbox-path.ts";
export type { OutputStream } from "./process/output-stream.ts";
export type { ProcessInfo } from "./process/processes.ts";
export type {
  Command,
  InputSource,
  PtyOptions,
  RunOptions,
  SpawnOptions,
  TerminalSize,
} from "./process/run-options.ts";
export { CommandError, type ExitStatus, type RunResult } from "./process/run-result.ts";
export type { SandboxProcess, SignalScope } from "./process/sandbox-process.ts";
export * from "./sandbox.ts";
export { type PortRequest, SandboxConnection } from "./sandbox-connection.ts";
