import { request } from "node:http";
import { sandboxdPort } from "../pods/sandboxd-launch.ts";
import type { SeenUse } from "./plan-checks.ts";

/** The daemon answers from memory; one that does not within this time has worse troubles. */
const askTimeoutMs = 2_000;

/** An answer is a line; a longer one is not our daemon's. */
const answerBytesMax = 4096;

/** Asks the daemon of a sandbox what goes on inside; undefined where none answers. Asking is no activity. */
export function askDaemon(address: string): Promise<SeenUse | undefined> {
  return new Promise((resolve) => {
    const outgoing = request({
      host: address,
      port: sandboxdPort,
      path: "/v1/activity",
      agent: false,
      signal: AbortSignal.timeout(askTimeoutMs),
    });
    outgoing.once("error", () => resolve(undefined));
    outgoing.once("response", (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on("data", (chunk: Buffer) => {
        size += chunk.length;
        if (size > answerBytesMax) outgoing.destroy(new Error("the answer is too long"));
        else chunks.push(chunk);
      });
      response.once("error", () => resolve(undefined));
      response.once("end", () =>
        resolve(response.statusCode === 200 ? readUse(Buffer.concat(chunks).toString()) : undefined),
      );
    });
    outgoing.end();
  });
}

/** What comes out of a sandbox is believed only as far as it has the right shape. Exported for tests. */
export function readUse(text: string): SeenUse | undefined {
  let value: Partial<Record<"liveProcesses" | "openStreams" | "inboundConnections" | "lastActivityAt", unknown>> | null;
  try {
    value = JSON.parse(text) as typeof value;
  } catch {
    return undefined;
  }
  const lastUseMs = Date.parse(String(value?.lastActivityAt));
  if (Number.isNaN(lastUseMs)) return undefined;
  const counts = [value?.liveProcesses, value?.openStreams, value?.inboundConnections];
  return { isInUse: counts.some(isPositive), lastUseMs };
}

function isPositive(value: unknown): boolean {
  return typeof value === "number" && value > 0;
}
