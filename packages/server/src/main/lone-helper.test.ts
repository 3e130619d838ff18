import path from "node:path";
import { expect, test } from "vitest";
import { temporaryDirectory } from "../store/testing/temporary-directory.ts";
import { withProgram } from "./lone-helper.ts";

/** Listens, says its pid to who connects, and does with SIGTERM what `onTerm` says. */
const listener = (onTerm: string): string => `
  process.on("SIGTERM", () => { ${onTerm} });
  require("node:net").createServer((socket) => socket.on("error", () => {}).end(String(process.pid))).listen(process.argv[1]);`;

async function pidOf(socket: string): Promise<number> {
  const { connect } = await import("node:net");
  const { text } = await import("node:stream/consumers");
  return Number(await text(connect(socket)));
}

test.each([
  ["that is not there", "/nonexistent/helper", "ENOENT"],
  ["that ends at once", "/bin/false", "it ended with 1"],
])("withProgram: a program %s is an error of the engine", async (_what, file, says) => {
  using place = temporaryDirectory();
  const program = { file, args: [], socket: path.join(place.path, "socket"), endTimeoutMs: 1_000 };
  await expect(withProgram(program, async () => 1)).rejects.toMatchObject({
    name: "EngineError",
    code: "no-engine",
    message: expect.stringContaining(says) as string,
  });
});

test.each([
  ["that takes its time", "setTimeout(() => process.exit(), 200)"],
  ["that does not end", ""],
])("withProgram: a program %s after SIGTERM is gone afterwards", async (_what, onTerm) => {
  using place = temporaryDirectory();
  const socket = path.join(place.path, "socket");
  const args = ["-e", listener(onTerm), socket];
  const pid = await withProgram({ file: process.execPath, args, socket, endTimeoutMs: 600 }, pidOf);
  expect(pid).toBeGreaterThan(0);
  expect(() => process.kill(pid, 0)).toThrow("ESRCH");
});
