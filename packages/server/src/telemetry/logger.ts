import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";

/** The structured logger every component receives; children add `component` and `key`. */
export type Logger = PinoLogger;

/** Where and how much to log. */
export interface LoggerOptions {
  /** The part of the system that speaks, for example `controllers`. */
  readonly component: string;
  /** Lowest level that is written; default `info`. */
  readonly level?: string;
  /** Default is standard error, so that standard output stays free for results. */
  readonly destination?: DestinationStream;
}

/** Opens a JSON-lines logger with the fields `ts, level, component, msg`. */
export function createLogger({ component, level = "info", destination }: LoggerOptions): Logger {
  return pino(
    {
      level,
      base: { component },
      timestamp: () => `,"ts":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

/** A logger that writes nothing, for tests and for callers that do not care. */
export function silentLogger(): Logger {
  return pino({ level: "silent" });
}
