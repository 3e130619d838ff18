import type { MessageType } from "../plane/protobuf.ts";

/**
 * Messages of agentsandbox.v1.ProcessService: absent fields are zero. In JSON `bytes` are base64 and 64-bit numbers strings;
 * in binary they are bytes and numbers.
 */
export interface WireProcess {
  readonly id?: string;
  readonly pid?: number;
  readonly command?: readonly string[];
  readonly cwd?: string;
  readonly user?: string;
  readonly tag?: string;
  readonly terminal?: boolean;
  readonly startedAt?: string;
  readonly exit?: WireExit;
  readonly outputStart?: string | number;
  readonly outputEnd?: string | number;
  readonly replayed?: boolean;
}

/** How a process ended. */
export interface WireExit {
  readonly code?: number;
  readonly signal?: string;
  readonly timedOut?: boolean;
  readonly finishedAt?: string;
  /** Of no message: which limit it was killed for, found out by the SDK. */
  readonly reason?: string;
}

/** A piece of output. */
export interface WireOutput {
  readonly data?: string | Uint8Array;
  readonly offset?: string | number;
}

/** One event of a process; exactly one field is present. */
export interface WireEvent {
  readonly started?: WireProcess;
  readonly stdout?: WireOutput;
  readonly stderr?: WireOutput;
  readonly dropped?: { readonly fromOffset?: string | number; readonly toOffset?: string | number };
  readonly exit?: WireExit;
}

/** What to run and how. */
export interface WireSpec {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly clearEnv?: boolean;
  readonly cwd?: string;
  readonly user?: string;
  readonly terminal?: { readonly cols: number; readonly rows: number };
  /** A protobuf duration: seconds with an `s`. */
  readonly timeout?: string;
  readonly stdin?: boolean;
  readonly outputBufferBytes?: string;
  readonly tag?: string;
  readonly log?: boolean;
}

/** The service's full name, before the slash of a method. */
export const processService = "agentsandbox.v1.ProcessService";

const exitType: MessageType = {
  1: ["code", "number"],
  2: ["signal", "string"],
  3: ["timedOut", "bool"],
  4: ["finishedAt", "timestamp"],
};
const processType: MessageType = {
  1: ["id", "string"],
  3: ["pid", "number"],
  4: ["command", "list"],
  5: ["cwd", "string"],
  6: ["user", "string"],
  7: ["tag", "string"],
  8: ["terminal", "bool"],
  9: ["startedAt", "timestamp"],
  10: ["exit", exitType],
  11: ["outputStart", "number"],
  12: ["outputEnd", "number"],
  13: ["replayed", "bool"],
};
const outputType: MessageType = { 1: ["data", "bytes"], 2: ["offset", "number"] };
const specType: MessageType = {
  1: ["command", "list"],
  2: ["env", "map"],
  3: ["clearEnv", "bool"],
  4: ["cwd", "string"],
  5: ["user", "string"],
  6: ["terminal", { 1: ["cols", "number"], 2: ["rows", "number"] }],
  7: ["timeout", "duration"],
  9: ["stdin", "bool"],
  10: ["outputBufferBytes", "number"],
  11: ["tag", "string"],
  12: ["log", "bool"],
};

/** One event of a process. */
export const eventType: MessageType = {
  1: ["started", processType],
  2: ["stdout", outputType],
  3: ["stderr", outputType],
  4: ["dropped", { 1: ["fromOffset", "number"], 2: ["toOffset", "number"] }],
  5: ["exit", exitType],
};

/** What starts a process. */
export const startType: MessageType = {
  1: ["spec", specType],
  2: ["idempotencyKey", "string"],
  3: ["detach", "bool"],
  4: ["killOnDisconnect", "bool"],
  5: ["firstSentMsAgo", "number"],
  6: ["service", "string"],
};

/** What follows a process. */
export const attachType: MessageType = { 1: ["id", "string"], 2: ["fromOffset", "number"], 3: ["noFollow", "bool"] };
