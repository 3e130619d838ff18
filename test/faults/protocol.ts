/** Where in a call something is killed. */
export const phases = [
  /** The call is made while what was killed is away. */
  "connecting",
  /** A request to a port of the sandbox was sent, and its answer has not begun. */
  "unanswered",
  /** A command prints. */
  "streaming",
  /** A command runs and prints nothing; its exit is waited for. */
  "idle",
  /** A file is being written, from a source that takes its time. */
  "upload",
  /** A file is being read, by a reader that takes its time. */
  "download",
  /** A state of the sandbox is waited for, by watch. */
  "wait",
  /** As idle, through the API server instead of the router. */
  "tunnel",
] as const;

export type Phase = (typeof phases)[number];

/** What a driver is asked: one line of JSON on its standard input. `recovered` runs a command, which must succeed; `memory` one that takes all there is. */
export interface Order {
  readonly id: number;
  readonly phase: Phase | "recovered" | "memory";
  readonly sandbox: string;
}

/** How a call ended. `untyped` is an error that the SDK does not make and the caller has not asked for. */
export interface Outcome {
  readonly kind: "result" | "error" | "timeout" | "untyped";
  /** Of an error. */
  readonly code?: string;
  readonly text: string;
}

/** What a driver prints: one line of JSON when the phase is reached, and one when the call has ended. */
export type Report =
  | { readonly id: number; readonly at: "phase" }
  | { readonly id: number; readonly at: "end"; readonly outcome: Outcome };

/** The limits that drivers give their calls, in seconds. Python's file calls take none: there the structure alone ends them. */
export const limitSeconds = { request: 20, command: 20, answer: 6, wait: 5, file: 20 } as const;

/** The port of a server that accepts and says nothing. */
export const silentPort = 7777;

/** A router's address at which nothing listens: the SDK takes the way through the API server. */
export const deadRouterUrl = "http://127.0.0.1:1";

/** The argv of a program that prints a line and then takes memory in small steps. */
export const memoryHog = [
  "python3",
  "-c",
  'b = []; print("begins", flush=True)\nwhile True: b.append(bytearray(4 << 20))',
];
