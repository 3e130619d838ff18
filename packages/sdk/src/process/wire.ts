/** Messages of agentsandbox.v1.ProcessService as JSON: absent fields are zero, `bytes` are base64, 64-bit numbers strings. */
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
  readonly outputStart?: string;
  readonly outputEnd?: string;
  readonly replayed?: boolean;
}

/** How a process ended. */
export interface WireExit {
  readonly code?: number;
  readonly signal?: string;
  readonly timedOut?: boolean;
  readonly finishedAt?: string;
}

/** A piece of output. */
export interface WireOutput {
  readonly data?: string;
  readonly offset?: string;
}

/** One event of a process; exactly one field is present. */
export interface WireEvent {
  readonly started?: WireProcess;
  readonly stdout?: WireOutput;
  readonly stderr?: WireOutput;
  readonly dropped?: { readonly fromOffset?: string; readonly toOffset?: string };
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
}

/** The service's full name, before the slash of a method. */
export const processService = "agentsandbox.v1.ProcessService";
