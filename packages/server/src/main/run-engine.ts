import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type EngineRecord, identifyProcess, type ProcessIdentity } from "@agent-sandbox/kube/engine-record";
import { createLogger, type Logger } from "../telemetry/logger.ts";
import { becomeProgram, noteFailure, undoSwitch } from "./go-back.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { startGuard } from "./start-guard.ts";
import { restoreStore } from "./store-restore.ts";
import { copyName } from "./store-versions.ts";
import {
  clearSwitchOrder,
  forgetSwitchOrder,
  readSwitchOrder,
  type SwitchOrder,
  switchLimitMs,
  switchSignal,
  writeSwitchOrder,
} from "./switch-order.ts";
import { type UpOptions, up } from "./up.ts";
import { readVersion } from "./version.ts";

/** Says to a version that it takes the place of another, which is to come back if it does not start. */
const arrivalVariable = "AGENT_SANDBOX_ARRIVES";

/**
 * Runs the engine in this process until a signal ends it; sandboxes go on. Asked to become another version, it ends the engine's processes and
 * turns into the other version's `up`: the pid stays, so that systemd, or a shell that waits, sees one process. The other version turns
 * back into this one if it does not come up; where it ends before it could, a guard starts this one again.
 */
export async function runEngine(options: UpOptions, onRunning: (record: EngineRecord) => void): Promise<void> {
  const layout = layoutOf(options.dataDir);
  const logger = createLogger({ component: "supervisor", level: options.logLevel });
  const signals = new Signals();
  const arrival = takeArrival(layout);
  if (arrival !== undefined) signals.endArrival(layout);
  const { engine, record } = await withinLimit(up(options), arrival).catch((error: unknown): Promise<never> => {
    if (arrival === undefined) throw error;
    return goBack({ layout, order: arrival, logger }, error);
  });
  await clearSwitchOrder(layout);
  signals.listenForEnd();
  onRunning(record);
  const order = await nextOrder(signals, layout, logger);
  await engine.stop();
  const args = argsLike(process.argv.slice(2), record);
  if (order !== undefined) await become({ layout, order, logger, logLevel: options.logLevel }, args, signals);
}

const endSignals = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

/**
 * The signals that a supervisor goes by. The one for a switch is listened for from before the record is there, by which others find this process:
 * by default it would end it. Those for the end do end it while it starts.
 */
class Signals {
  readonly #waiting: ("end" | "switch")[] = [];
  #wake: () => void = () => undefined;

  constructor() {
    process.on(switchSignal, () => this.#add("switch"));
  }

  /** One that comes while a version takes the place of another ends both: without an order, the guard starts nothing. */
  endArrival(layout: Layout): void {
    for (const name of endSignals)
      process.once(name, () => {
        forgetSwitchOrder(layout);
        process.kill(process.pid, name);
      });
  }

  listenForEnd(): void {
    for (const name of endSignals) {
      process.removeAllListeners(name);
      process.once(name, () => this.#add("end"));
    }
  }

  /** Whether a signal for the end waits. */
  get isEnding(): boolean {
    return this.#waiting.includes("end");
  }

  #add(signal: "end" | "switch"): void {
    this.#waiting.push(signal);
    this.#wake();
  }

  async next(): Promise<"end" | "switch"> {
    for (;;) {
      const signal = this.#waiting.shift();
      if (signal !== undefined) return signal;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Resolves with what to become, or with undefined when the engine is to end. */
async function nextOrder(signals: Signals, layout: Layout, logger: Logger): Promise<SwitchOrder | undefined> {
  while ((await signals.next()) === "switch") {
    const order = readSwitchOrder(layout);
    if (order !== undefined) return order;
    logger.warn("asked to become another version, and not told which");
  }
  return undefined;
}

interface Switching {
  readonly layout: Layout;
  readonly order: SwitchOrder;
  readonly logger: Logger;
}

interface Becoming extends Switching {
  readonly logLevel: string;
}

/** Resolves where the engine is to end after all. Preconditions: the engine's processes have ended. */
async function become(
  { layout, order, logger, logLevel }: Becoming,
  args: readonly string[],
  signals: Signals,
): Promise<void> {
  const [, main = ""] = process.argv;
  const { restore } = order;
  const own = readVersion();
  const kept = { name: copyName(own, Date.now()), of: own };
  const whole: SwitchOrder = {
    ...order,
    ...(restore !== undefined && { kept }),
    back: { program: process.execPath, args: [...process.execArgv, main, ...args] },
  };
  logger.info({ from: own, to: order.version, program: order.program }, "becoming another version");
  try {
    writeSwitchOrder(layout, whole);
    writeSwitchOrder(layout, { ...whole, guard: await guardThis(layout, logLevel) });
    if (restore !== undefined) await restoreStore(layout, { copy: restore.copy, to: restore.of, kept: kept.name });
    // A command that ends the engine may have come after the one that switches it. The link leads to the other version already.
    if (signals.isEnding) return forgetSwitchOrder(layout);
    becomeProgram({ program: order.program, args }, { ...process.env, [arrivalVariable]: "1" });
  } catch (error) {
    await goBack({ layout, order: whole, logger }, error);
  }
}

function guardThis({ dataDir }: Layout, logLevel: string): Promise<ProcessIdentity> {
  const supervisor = identifyProcess(process.pid);
  if (supervisor === undefined) throw new Error("this process has no entry in /proc");
  return startGuard({ dataDir, logLevel, supervisor });
}

/** The order that made this process what it is. */
function takeArrival(layout: Layout): SwitchOrder | undefined {
  const isArrival = process.env[arrivalVariable] !== undefined;
  delete process.env[arrivalVariable];
  return isArrival ? readSwitchOrder(layout) : undefined;
}

/** Rejects when a version that takes the place of another is not there in time; any other start has all the time it needs. */
async function withinLimit<T>(start: Promise<T>, arrival: SwitchOrder | undefined): Promise<T> {
  if (arrival === undefined) return start;
  const late = sleep(switchLimitMs, undefined, { ref: false }).then(() => {
    throw new Error(`it did not answer within ${switchLimitMs / 1000} s`);
  });
  return Promise.race([start, late]);
}

async function goBack({ layout, order, logger }: Switching, error: unknown): Promise<never> {
  const message = error instanceof Error ? error.message : String(error);
  logger.error({ err: error, version: order.version }, "the version does not start; going back to the one before");
  if (order.back === undefined) throw error;
  noteFailure(layout, order, message);
  await endChildren();
  await undoSwitch(layout, order);
  return becomeProgram(order.back, process.env);
}

// Shorter than the pause after which the supervisor would start a process again.
const childrenLookMs = 50;

/** A process that the kernel cannot end, for instance one that waits for a dead disk, must not keep the version before from coming back. */
const childrenLimitMs = 5_000;

/** Ends what a start that was given up left running. A child is reaped before this process changes, or it would stay a zombie. */
async function endChildren(): Promise<void> {
  const endMs = performance.now() + childrenLimitMs;
  for (let children = ownChildren(); children.length > 0; children = ownChildren()) {
    if (performance.now() >= endMs) return;
    for (const pid of children) endChild(pid);
    await sleep(childrenLookMs);
  }
}

function endChild(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It was reaped since it was listed.
  }
}

function ownChildren(): number[] {
  const task = "/proc/self/task";
  return readdirSync(task).flatMap((thread) => childrenOf(`${task}/${thread}/children`));
}

function childrenOf(file: string): number[] {
  try {
    return readFileSync(file, "utf8").trim().split(" ").filter(Boolean).map(Number);
  } catch {
    // The thread has ended, or the kernel was built without these lists.
    return [];
  }
}

/**
 * The arguments of this `up` for the next one: clients know the ports that the kernel chose, so the next one gets them.
 * Exported for tests.
 */
export function argsLike(
  args: readonly string[],
  urls: Pick<EngineRecord, "apiUrl" | "routerUrl" | "metricsUrl">,
): string[] {
  const taken: Readonly<Record<string, string>> = {
    "--listen": urls.apiUrl,
    "--router-listen": urls.routerUrl,
    "--metrics-listen": urls.metricsUrl,
  };
  return args.map((word, index) => {
    const [flag = "", value] = word.includes("=") ? word.split("=", 2) : [args[index - 1], word];
    const url = taken[flag];
    if (url === undefined || value?.endsWith(":0") !== true) return word;
    const address = new URL(url).host;
    return word.includes("=") ? `${flag}=${address}` : address;
  });
}
