import { type Controller, type ControllerOptions, defineController } from "./controller.ts";

/** Work that is done again and again. */
export interface LoopOptions extends Pick<ControllerOptions<string>, "name" | "clock" | "random" | "telemetry"> {
  /** Before the first run, and from the end of one run to the start of the next; after one that failed it may be down to half of it. */
  readonly everyMs: number;
  readonly run: () => Promise<void>;
}

/** A controller of one key, its own name: runs now and then, never twice at a time. */
export function defineLoop({ everyMs, run, ...options }: LoopOptions): Controller {
  return defineController({
    ...options,
    backoff: { firstMs: everyMs, maxMs: everyMs },
    observe: (queue) => queue.addAfter(options.name, everyMs),
    reconcile: async () => {
      await run();
      return { kind: "requeue-after", afterMs: everyMs };
    },
  });
}
