import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { type DnsQuestion, encodeQuestion, isAnswerTo, isTruncated } from "./dns-message.ts";

/** How long one resolver may take, over both protocols together, before the next is asked. */
const resolverTimeoutMs = 2_000;

/** What a resolver may send in one datagram: what passes every network in one piece. */
export const udpBytesMax = 1232;

/** The longest message that the length before it can announce. */
const messageBytesMax = 65_535;

/** Asks one resolver, `address` or `address:port`. Rejects when it does not answer this very question in time. */
export async function askResolver(resolver: string, question: DnsQuestion): Promise<Buffer> {
  const [, address = resolver, port = "53"] = /^(.*?)(?::(\d+))?$/.exec(resolver) ?? [];
  const to = { address, port: Number(port), signal: AbortSignal.timeout(resolverTimeoutMs) };
  const answer = await askUdp(to, question);
  return isTruncated(answer) ? askTcp(to, question) : answer;
}

interface Resolver {
  readonly address: string;
  readonly port: number;
  readonly signal: AbortSignal;
}

/** A random number: together with the port it is what a forged answer would have to guess. */
function freshId(): number {
  return randomInt(0x10000);
}

function askUdp({ address, port, signal }: Resolver, question: DnsQuestion): Promise<Buffer> {
  const id = freshId();
  const query = encodeQuestion(question, id, udpBytesMax);
  return new Promise((resolve, reject) => {
    const socket = createSocket("udp4");
    let isOver = false;
    const finish = (settle: () => void): void => {
      if (isOver) return;
      isOver = true;
      signal.removeEventListener("abort", onTimeout);
      socket.close();
      settle();
    };
    const onTimeout = (): void => finish(() => reject(new Error(`resolver ${address} did not answer`)));
    signal.addEventListener("abort", onTimeout, { once: true });
    socket.on("error", (error) => finish(() => reject(error)));
    const sendOrFail = (error?: Error): void => {
      // Without a route the kernel refuses the connection, and Node calls this with the reason.
      if (error !== undefined) finish(() => reject(error));
      else if (!isOver) socket.send(query);
    };
    // A connected socket takes answers from its peer alone, and its port is chosen at random by the kernel.
    socket.connect(port, address, sendOrFail);
    socket.on("message", (message) => {
      if (isAnswerTo(message, question, id)) finish(() => resolve(message));
    });
  });
}

function askTcp({ address, port, signal }: Resolver, question: DnsQuestion): Promise<Buffer> {
  const id = freshId();
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port });
    const abort = (): void => void socket.destroy(new Error(`resolver ${address} did not answer`));
    signal.addEventListener("abort", abort, { once: true });
    const chunks: Buffer[] = [];
    let size = 0;
    socket.on("error", reject);
    socket.on("close", () => {
      signal.removeEventListener("abort", abort);
      reject(new Error(`resolver ${address} closed the connection`));
    });
    socket.on("connect", () => socket.write(withLength(encodeQuestion(question, id, udpBytesMax))));
    socket.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      const message = size >= 2 ? tryTakeMessage(Buffer.concat(chunks)) : undefined;
      if (message !== undefined && isAnswerTo(message, question, id)) resolve(message);
      if (message !== undefined || size > 2 + messageBytesMax) socket.destroy();
    });
  });
}

/** A message as it goes over TCP. */
export function withLength(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(2 + message.length);
  framed.writeUInt16BE(message.length, 0);
  message.copy(framed, 2);
  return framed;
}

/** The first message of a TCP stream; undefined while it is not complete. */
export function tryTakeMessage(bytes: Buffer): Buffer | undefined {
  if (bytes.length < 2) return undefined;
  const end = 2 + bytes.readUInt16BE(0);
  return bytes.length < end ? undefined : bytes.subarray(2, end);
}
