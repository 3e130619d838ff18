// Makes the calls of test/faults with the TypeScript SDK: orders come as lines on standard input, see protocol.ts.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { isSandboxError, Sandbox } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine.ts";
import {
  deadRouterUrl,
  limitSeconds,
  memoryHog,
  type Order,
  type Outcome,
  type Report,
  silentPort,
} from "./protocol.ts";

const engine = await connectEngine();
const routerless = await connectEngine({ routerUrl: deadRouterUrl });
const limits = { requestTimeoutMs: limitSeconds.request * 1000, commandTimeoutMs: limitSeconds.command * 1000 };

/** Pieces of a download that are read slowly, so that it is under way when something is killed. */
const slowPieces = 100;

type Call = (box: Sandbox, order: Order, reached: () => void) => Promise<string>;

async function idle(box: Sandbox, _order: Order, reached: () => void): Promise<string> {
  const process = await box.spawn("sleep 6; exit 7", limits);
  reached();
  const { exitCode, reason = "", timedOut } = await process.exited;
  return `exit ${exitCode}${timedOut ? " timed out" : ""} ${reason}`.trim();
}

async function* slowly(reached: () => void): AsyncGenerator<Uint8Array> {
  for (let piece = 0; piece < 100; piece += 1) {
    if (piece === 5) reached();
    yield new Uint8Array(64 * 1024);
    await sleep(50);
  }
}

const calls: Record<Order["phase"], Call> = {
  recovered: async (box) => (await box.run("cat /var/tmp/ran 2>/dev/null | wc -l", limits)).stdout.trim(),
  connecting: async (box, _order, reached) => {
    reached();
    const { exitCode, reason = "", stdout } = await box.run("echo x >> /var/tmp/ran; echo back", limits);
    return `exit ${exitCode} ${reason}${stdout}`.trim();
  },
  unanswered: async (box, _order, reached) => {
    setTimeout(reached, 300);
    const signal = AbortSignal.timeout(limitSeconds.answer * 1000);
    return `status ${(await box.fetch(silentPort, "/", { signal })).status}`;
  },
  streaming: async (box, _order, reached) => {
    const command = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo tick; sleep 0.1; done; exit 7";
    const { exitCode, reason = "" } = await box.run(command, { ...limits, onStdout: reached });
    return `exit ${exitCode} ${reason}`.trim();
  },
  memory: async (box, _order, reached) => {
    const { exitCode, reason = "" } = await box.run(memoryHog, { ...limits, onStdout: reached });
    return `exit ${exitCode} ${reason}`.trim();
  },
  idle,
  tunnel: idle,
  upload: async (box, _order, reached) => {
    const signal = AbortSignal.timeout(limitSeconds.file * 1000);
    await box.files.write("/tmp/up", slowly(reached), { signal });
    return "written";
  },
  download: async (box, _order, reached) => {
    const signal = AbortSignal.timeout(limitSeconds.file * 1000);
    let sizeBytes = 0;
    let pieces = 0;
    for await (const piece of box.files.readStream("/tmp/big", { signal })) {
      reached();
      sizeBytes += piece.length;
      pieces += 1;
      if (pieces < slowPieces) await sleep(20);
    }
    return `${sizeBytes} bytes`;
  },
  wait: async (box, _order, reached) => {
    setTimeout(reached, 300);
    return (await box.waitFor("suspended", { waitTimeoutMs: limitSeconds.wait * 1000 })).state;
  },
};

function say(report: Report): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

function outcomeOf(error: unknown): Outcome {
  const text = error instanceof Error ? error.message : String(error);
  if (isSandboxError(error)) return { kind: "error", code: error.code, text };
  return { kind: (error as Error).name === "TimeoutError" ? "timeout" : "untyped", text };
}

async function carryOut(order: Order): Promise<void> {
  let isReached = false;
  const reached = (): void => {
    if (!isReached) say({ id: order.id, at: "phase" });
    isReached = true;
  };
  const chosen = order.phase === "tunnel" ? routerless : engine;
  const outcome = await Sandbox.get(order.sandbox, { engine: chosen })
    .then((box) => calls[order.phase](box, order, reached))
    .then((text): Outcome => ({ kind: "result", text }), outcomeOf);
  say({ id: order.id, at: "end", outcome });
}

for await (const line of createInterface({ input: process.stdin })) void carryOut(JSON.parse(line) as Order);
process.exit(0);
