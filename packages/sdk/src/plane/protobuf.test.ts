import { fromBinary, fromJson, type JsonValue, toBinary, toJson } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  AttachRequestSchema,
  ProcessEventSchema,
  StartRequestSchema,
} from "../../../server/src/node/proto/process.gen.ts";
import { attachType, eventType, startType } from "../process/wire.ts";
import { decodeMessage, encodeMessage } from "./protobuf.ts";

const start = {
  spec: {
    command: ["/bin/sh", "-c", "echo ä"],
    env: { A: "1", B: "" },
    clearEnv: true,
    cwd: "/tmp",
    user: "1:2",
    terminal: { cols: 101, rows: 31 },
    timeout: "1.500s",
    stdin: true,
    outputBufferBytes: "67108864",
    tag: "t",
  },
  idempotencyKey: "0123456789abcdef",
  killOnDisconnect: true,
};

const events: readonly JsonValue[] = [
  {
    started: {
      id: "p",
      pid: 300,
      command: ["a", "b"],
      cwd: "/",
      startedAt: "2026-11-15T10:00:00.250Z",
      replayed: true,
    },
  },
  { stdout: { data: "AP/+", offset: "5000000000" } },
  { stderr: { data: "", offset: "1" } },
  { dropped: { toOffset: "7" } },
  { exit: { code: 137, signal: "SIGKILL", timedOut: true, finishedAt: "2026-11-15T10:00:01Z", outputOffset: "9" } },
];

test("encodeMessage: a start means to the generated code what it says", () => {
  expect(toJson(StartRequestSchema, fromBinary(StartRequestSchema, encodeMessage(startType, start)))).toEqual(start);
});

test("encodeMessage: an offset beyond 32 bits is kept", () => {
  const bytes = encodeMessage(attachType, { id: "x", fromOffset: 6_000_000_000 });
  expect(fromBinary(AttachRequestSchema, bytes)).toMatchObject({ id: "x", fromOffset: 6_000_000_000n });
});

test.each(events)("decodeMessage: an event of the generated code is read: %j", (event) => {
  const decoded = decodeMessage<Record<string, Record<string, unknown>>>(
    eventType,
    toBinary(ProcessEventSchema, fromJson(ProcessEventSchema, event)),
  );
  expect(jsonOf(decoded)).toEqual(jsonOf(event as object));
});

test("decodeMessage: a message that is cut off is refused", () => {
  const bytes = encodeMessage(startType, start);
  expect(() => decodeMessage(startType, bytes.subarray(0, -3))).toThrow("ends inside");
});

/** The JSON form with numbers as numbers, zeros left out, and without what the SDK has no use for. */
function jsonOf(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(jsonOf);
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([name, inner]) => name !== "outputOffset" && inner !== "");
    return Object.fromEntries(entries.map(([name, inner]) => [name, jsonOf(inner)]));
  }
  if (typeof value !== "string") return value;
  if (/^\d{4}-\d\d-\d\dT/.test(value)) return Date.parse(value);
  return /^\d+$/.test(value) ? Number(value) : value;
}
