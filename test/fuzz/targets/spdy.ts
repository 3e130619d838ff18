import { duplexPair } from "node:stream";
import { SpdyConnection } from "../../../packages/kube/src/streams/spdy/connection.ts";
import { controlFrame, dataFrame, FrameParser, words } from "../../../packages/kube/src/streams/spdy/frame.ts";
import { HeaderReader, HeaderWriter } from "../../../packages/kube/src/streams/spdy/header-block.ts";
import { type FuzzTarget, pieces, promise, refusing } from "../fuzz-target.ts";

const block = (): Buffer => new HeaderWriter().write({ streamtype: "data", port: "8888", requestid: "0" });
const synStream = controlFrame(1, 0, Buffer.concat([words(1, 0), Buffer.alloc(2), block()]));
const seeds = [
  Buffer.concat([synStream, dataFrame(1, Buffer.from("hello"), true)]),
  Buffer.concat([controlFrame(6, 0, words(1)), controlFrame(9, 0, words(1, 0x1000)), controlFrame(7, 0, words(0, 0))]),
  Buffer.concat([synStream, controlFrame(3, 0, words(1, 5)), dataFrame(3, Buffer.from("x"), false)]),
];
const dictionary = [
  "\x80\x03\x00\x01",
  "\x80\x03\x00\x02",
  "\x80\x03\x00\x03",
  "\x80\x03\x00\x04",
  "\x80\x03\x00\x08",
  "\x00\x00\x00\x01",
  "\x01\x00\x00\x00",
  "\x7f\xff\xff\xff",
];

function frames(parts: readonly Buffer[]): string | undefined {
  const parser = new FrameParser();
  return refusing(
    () => JSON.stringify(parts.flatMap((part) => [...parser.push(part)])),
    (error) => /^(frame of \d+ bytes is larger|SPDY version \d+ is not)/.test(error.message),
  );
}

/** Frames of exec, attach and port-forward in their older protocol. */
export const spdyFrames: FuzzTarget = {
  name: "spdy-frames",
  seeds,
  dictionary,
  run(input) {
    promise(frames([input]) === frames(pieces(input)), "where bytes are cut changes the frames");
  },
};

/** Header blocks are compressed: a small one may become large, or never end. */
export const spdyHeaders: FuzzTarget = {
  name: "spdy-headers",
  seeds: [block()],
  dictionary: ["\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x78\xbb"],
  async run(input) {
    const reader = new HeaderReader();
    try {
      const headers = await reader.read(input).catch((error: unknown) => {
        promise(error instanceof Error, "a refusal is an Error");
      });
      for (const value of Object.values(headers ?? {})) promise(typeof value === "string", "a header is text");
    } finally {
      reader.close();
    }
  },
};

/** A whole connection, from its first byte to its end. */
export const spdyConnection: FuzzTarget = {
  name: "spdy-connection",
  seeds,
  dictionary,
  async run(input) {
    const [ours, theirs] = duplexPair();
    let open = 0;
    const connection = new SpdyConnection(ours, {
      onStream: (stream) => {
        open += 1;
        stream.once("close", () => (open -= 1));
        stream.on("error", () => undefined);
        stream.resume();
      },
    });
    theirs.resume();
    theirs.on("error", () => undefined);
    theirs.end(input);
    await connection.closed;
    await new Promise((resolve) => setImmediate(resolve));
    promise(open === 0, "a connection that ended left a stream open");
  },
};
