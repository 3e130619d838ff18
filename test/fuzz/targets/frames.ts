import { ApiError } from "@agent-sandbox/api";
import { decodeEnvelopes, EnvelopeError, encodeEnvelope } from "../../../packages/sdk/src/plane/envelope.ts";
import { decodeMessage, encodeMessage, ProtobufError } from "../../../packages/sdk/src/plane/protobuf.ts";
import { eventType } from "../../../packages/sdk/src/process/wire.ts";
import { JsonSyntaxError } from "../../../packages/server/src/apiserver/json/parse-json.ts";
import { decodeProtobuf } from "../../../packages/server/src/apiserver/protobuf/decode-protobuf.ts";
import { encodeFrame, FrameDecoder } from "../../../packages/server/src/node/host/exec-frame.ts";
import { type FuzzTarget, pieces, promise, refusing } from "../fuzz-target.ts";

async function envelopes(parts: readonly Buffer[]): Promise<string> {
  const read: string[] = [];
  try {
    for await (const { flags, body } of decodeEnvelopes(
      (async function* () {
        yield* parts;
      })(),
    ))
      read.push(`${flags}:${Buffer.from(body).toString("hex")}`);
  } catch (error) {
    promise(error instanceof EnvelopeError, `refused with ${String(error)}`);
    return `${read.join()} ${(error as EnvelopeError).isTruncated}`;
  }
  return read.join();
}

/** Messages of sandboxd's streams, as the SDK reads them. */
export const connectEnvelopes: FuzzTarget = {
  name: "connect-envelopes",
  seeds: [
    Buffer.concat([encodeEnvelope(Buffer.from("{}")), encodeEnvelope(Buffer.from('{"error":{"code":"internal"}}'), 2)]),
    encodeEnvelope(new Uint8Array(0), 1),
  ],
  dictionary: ["\x00\x00\x00\x00\x00", "\x02\x00\x00\x00\x02{}", "\x00\xff\xff\xff\xff", "\x00\x04\x00\x00\x00"],
  async run(input) {
    promise(
      (await envelopes([input])) === (await envelopes(pieces(input))),
      "where bytes are cut changes the messages",
    );
  },
};

/** Events of a process in sandboxd's binary form: a guest may have replaced the daemon. */
export const processEvents: FuzzTarget = {
  name: "process-events",
  seeds: [
    encodeMessage(eventType, { stdout: { data: Buffer.from("hi"), offset: 0 } }),
    encodeMessage(eventType, { exit: { code: 3, finishedAt: "2026-01-02T03:04:05Z" } }),
    Buffer.from("0a0f0a0131120a08808080f0d1e7f1b802", "hex"),
  ],
  dictionary: ["\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\x7f", "\x12\x00", "\x1a\x02\x08\x01", "\x22\x00"],
  run(input) {
    const message = refusing(
      () => decodeMessage<object>(eventType, input),
      (error) => error instanceof ProtobufError,
    );
    promise(Object.getPrototypeOf(message ?? {}) === Object.prototype, "a message changed its own prototype");
  },
};

/** Objects in Kubernetes' binary form, as any caller of the API may send them. */
export const kubeProtobuf: FuzzTarget = {
  name: "kube-protobuf",
  seeds: [
    Buffer.concat([
      Buffer.from("k8s\0"),
      Buffer.from("0a090a02763112034e6f64", "hex"),
      Buffer.from("6512040a020a00", "hex"),
    ]),
    Buffer.concat([
      Buffer.from("k8s\0"),
      Buffer.from("0a0c0a0276311206536563726574120f0a0d0a0173120012001a0022002a00", "hex"),
    ]),
    Buffer.concat([Buffer.from("k8s\0"), Buffer.from("0a090a0276311203506f64121a0a180a0170120022003200", "hex")]),
  ],
  dictionary: [
    "k8s\0",
    "\x0a\x09\x0a\x02v1\x12\x03Pod",
    "\x0a\x0f\x0a\x02v1\x12\x09ConfigMap",
    "\x12\x02",
    "\xff\xff\xff\xff\x0f",
    "\x0a\x00",
  ],
  run(input) {
    refusing(
      () => JSON.stringify(decodeProtobuf(input)),
      (error) => error instanceof ApiError || error instanceof JsonSyntaxError,
    );
  },
};

function decoded(parts: readonly Buffer[]): string | undefined {
  const decoder = new FrameDecoder();
  return refusing(
    () => JSON.stringify(parts.flatMap((part) => decoder.push(part))),
    (error) => error instanceof RangeError,
  );
}

/** Frames between the node and its helper, which carry a guest's output. */
export const execFrames: FuzzTarget = {
  name: "exec-frames",
  seeds: [Buffer.concat([encodeFrame(1, Buffer.from("out")), encodeFrame(4, Buffer.from('{"exitCode":0}'))])],
  dictionary: ["\x01\x00\x00\x00\x00", "\x02\x00\x10\x00\x00", "\x04\x00\x00\x00\x02{}"],
  run(input) {
    promise(decoded([input]) === decoded(pieces(input)), "where bytes are cut changes the frames");
  },
};
