/**
 * A client of the router inside an engine's network namespace; started by `openCalls` of bench/load/engine-calls.ts with its
 * options as JSON. Reads one JSON job per line from standard input and answers each with one line.
 */
import { once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { createInterface } from "node:readline";
import { setImmediate as turn } from "node:timers/promises";
import { crc32 } from "node:zlib";
import type { Job, JobResult, Place } from "./engine-calls.ts";

const place = JSON.parse(process.argv[2] ?? "{}") as Place;
const isTls = place.url.startsWith("https:");
const url = new URL(place.url);
const { ca, cert, key } = place;
const agent = isTls
  ? new https.Agent({ keepAlive: true, ca, cert, key, servername: "localhost" })
  : new http.Agent({ keepAlive: true });

function open(job: Pick<Job, "method" | "path" | "headers">): http.ClientRequest {
  const options = { host: url.hostname, port: url.port, method: job.method, path: job.path, agent };
  const headers = { ...place.headers, ...job.headers };
  return (isTls ? https : http).request({ ...options, headers });
}

/** Bytes that differ from block to block, so that a lost or doubled one is seen. */
function* blocks(bytes: number): Generator<Buffer> {
  const block = Buffer.alloc(1 << 20);
  for (let sent = 0, index = 0; sent < bytes; sent += block.length, index += 1) {
    block.fill(index & 255);
    yield block.subarray(0, Math.min(block.length, bytes - sent));
  }
}

async function read(response: IncomingMessage): Promise<{ bytes: number; sum: number }> {
  let [bytes, sum] = [0, 0];
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    sum = crc32(chunk, sum);
  }
  return { bytes, sum };
}

/** One exchange; a body of many bytes is made while it is sent. */
async function exchange(
  job: Job,
): Promise<{ ms: number; status: number; bytes: number; sum: number; sentSum: number }> {
  const startMs = performance.now();
  const headers = job.bytes === undefined ? job.headers : { ...job.headers, "content-length": String(job.bytes) };
  const request = open({ ...job, ...(headers && { headers }) });
  const answered = once(request, "response") as Promise<[IncomingMessage]>;
  answered.catch(() => undefined);
  let sentSum = 0;
  if (job.bytes === undefined) request.end(job.body);
  else {
    for (const block of blocks(job.bytes)) {
      sentSum = crc32(block, sentSum);
      // The block is used again, so it must have left.
      await new Promise((resolve) => request.write(block, resolve));
    }
    request.end();
  }
  const [response] = await answered;
  const got = await read(response);
  return { ms: performance.now() - startMs, status: response.statusCode ?? 0, ...got, sentSum };
}

async function run(job: Job): Promise<JobResult> {
  const { times = 1, atOnce = 1 } = job;
  const ms: number[] = [];
  const statuses = new Set<number>();
  let [bytes, sum, sentSum, next] = [0, 0, 0, 0];
  const startMs = performance.now();
  const worker = async (): Promise<void> => {
    while (next < times) {
      const index = next++;
      const numbered = { ...job, path: job.path.replace("{index}", String(index)) };
      const one = await exchange(numbered);
      ms.push(one.ms);
      statuses.add(one.status);
      bytes += one.bytes;
      [sum, sentSum] = [one.sum, one.sentSum];
      if (job.pauseEach === true) await turn();
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return { ms, totalMs: performance.now() - startMs, statuses: [...statuses], bytes, sum, sentSum };
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line) as Job))}\n`);
agent.destroy();
