import type net from "node:net";

/** The daemon's answer is three short lines; a longer one is not our daemon's. */
const answerBytesMax = 4096;

/**
 * Turns a connection to a sandbox's daemon into one to a port of the sandbox's own loopback address. Resolves with false
 * where nothing listens there either, or what answers is no daemon; the connection is then of no more use.
 */
export function dialInside(daemon: net.Socket, port: number, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0);
    const settle = (isThere: boolean): void => {
      clearTimeout(timer);
      daemon.removeListener("data", onData);
      daemon.removeListener("error", onEnd);
      daemon.removeListener("close", onEnd);
      daemon.removeListener("end", onEnd);
      if (!isThere) {
        // A late failure of a connection that is not used any more must not end the process.
        daemon.on("error", () => undefined);
        daemon.destroy();
      }
      resolve(isThere);
    };
    const onEnd = (): void => settle(false);
    const onData = (chunk: Buffer): void => {
      bytes = Buffer.concat([bytes, chunk]);
      const end = bytes.indexOf("\r\n\r\n");
      if (end === -1) {
        if (bytes.length > answerBytesMax) settle(false);
        return;
      }
      const isSwitched = bytes.toString("latin1", 0, 13) === "HTTP/1.1 101 ";
      if (isSwitched) {
        daemon.pause();
        if (bytes.length > end + 4) daemon.unshift(bytes.subarray(end + 4));
      }
      settle(isSwitched);
    };
    const timer = setTimeout(onEnd, timeoutMs);
    daemon.on("data", onData);
    daemon.once("error", onEnd);
    daemon.once("close", onEnd);
    daemon.once("end", onEnd);
    daemon.write(`GET /v1/dial/${port} HTTP/1.1\r\nHost: sandbox\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`);
  });
}
