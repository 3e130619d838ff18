/** The names of outcomes in metrics and logs: a closed set. */
export type PassOutcome = "done" | "requeue-after" | "conflict" | "terminal" | "failed" | "cancelled";

/** What happened in one pass: one log line, one observation. */
export interface PassReport {
  readonly controller: string;
  readonly key: string;
  readonly passId: string;
  readonly outcome: PassOutcome;
  readonly durationMs: number;
  readonly actions?: number;
  /** When the key comes back by itself. */
  readonly retryAfterMs?: number;
  readonly error?: unknown;
}

/** The span that a pass runs in. */
export interface PassSpan {
  readonly name: string;
  /** Text of a trace-context annotation, whose span becomes the parent; undefined or unreadable: the pass begins a trace. */
  readonly parent?: string | undefined;
  readonly attributes?: Readonly<Record<string, string>>;
}

/** What a queue counts. Implementations must not throw. */
export interface QueueMeter {
  /** A key that was neither ready nor marked to be done again has become so. */
  keyAdded(): void;
  /** A pass failed, and its key waits for the next try. */
  keyRetried(): void;
  /** A worker got a key that had been ready for this long. */
  keyTaken(waitedMs: number): void;
  /** The work on a key ended after this long. */
  keyDone(workedMs: number): void;
}

/** What one controller tells while it works. */
export interface ControllerMeter extends QueueMeter {
  passBegan(): void;
  passEnded(report: PassReport): void;
  /** Runs `work` inside a span. An error that it throws is recorded on the span and thrown on; one that it passes to `fail` is recorded alone. */
  inSpan<R>(span: PassSpan, work: (fail: (error: unknown) => void) => Promise<R>): Promise<R>;
}

/** What can be read off a controller at any moment. */
export interface MeteredController {
  readonly name: string;
  readonly workers: number;
  /** Keys that are ready to be taken. */
  readonly depth: () => number;
  /** For how long each key under way has been worked on. */
  readonly workingSeconds: () => readonly number[];
}

/** Where controllers tell what they do. This package knows neither a metrics library nor a tracer; the process that runs the controllers brings both. */
export interface ControllerTelemetry {
  /** Called once for each controller when it is defined; one of the same name takes the place of its predecessor. */
  open(controller: MeteredController): ControllerMeter;
}
