import { request as requestHttp } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { request as requestHttps } from "node:https";
import { connect, type Socket } from "node:net";
import type { CheckResult, GrpcCheck, HttpCheck, ProbeDialers } from "./probe-check.ts";

/** Bytes of an answer that are looked at; the rest is thrown away unread. */
const bodyBytesMax = 10 * 1024;

/** What is given to the rest of an answer, so that a server sees it taken; one that holds it back would keep a connection for each try. */
const restMsMax = 1_000;

/** The real network. Nothing a sandbox answers is followed: a redirect counts as success, like any status below 400. */
export const networkDialers: ProbeDialers = { http: checkHttp, tcp: checkTcp, grpc: checkGrpc };

/** Dials before it makes a request: most dials are refused, and one that is costs a tenth of a request. */
async function checkHttp(check: HttpCheck, signal: AbortSignal): Promise<CheckResult> {
  const { scheme, host, port, path, headers } = check;
  const dialled = await dial(host, port, signal);
  const send = scheme === "https" ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const request = send({
      host,
      port,
      path,
      method: "GET",
      signal,
      // Beside an agent `createConnection` is not called, and the agent of no option would dial once more.
      ...(scheme === "https" ? { agent: false, socket: dialled } : { createConnection: () => dialled }),
      headers: {
        "user-agent": "kube-probe/agent-sandbox",
        accept: "*/*",
        connection: "close",
        ...Object.fromEntries(headers),
      },
      // As with the kubelet: a probe proves liveness, not identity.
      rejectUnauthorized: false,
    });
    request.on("error", reject);
    request.on("response", (response) => {
      const status = response.statusCode ?? 0;
      let seen = 0;
      response.on("data", (chunk: Buffer) => {
        seen += chunk.length;
        if (seen > bodyBytesMax) response.destroy();
      });
      const giveUp = setTimeout(() => response.destroy(), restMsMax);
      response.once("close", () => clearTimeout(giveUp));
      response.on("error", () => undefined);
      // The status says it all; the end of the body would cost a way into the sandbox and back.
      resolve({ isOk: status >= 200 && status < 400, message: `HTTP probe failed with statuscode: ${status}` });
    });
    request.end();
  });
}

async function checkTcp(address: string, port: number, signal: AbortSignal): Promise<CheckResult> {
  (await dial(address, port, signal)).destroy();
  return { isOk: true, message: "" };
}

/** Resolves with a connection; rejects when it is refused or the signal comes first. */
function dial(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    const abort = (): void => void socket.destroy(new Error("context deadline exceeded"));
    signal.addEventListener("abort", abort, { once: true });
    const settle = (): void => signal.removeEventListener("abort", abort);
    socket.once("connect", () => {
      settle();
      resolve(socket);
    });
    socket.once("error", (error) => {
      settle();
      reject(error);
    });
  });
}

/** One unary call by hand: the message has a single string in, a single enum out. */
function checkGrpc({ address, port, service }: GrpcCheck, signal: AbortSignal): Promise<CheckResult> {
  return new Promise((resolve, reject) => {
    const session = connectHttp2(`http://${address}:${port}`);
    const abort = (): void => session.destroy(new Error("context deadline exceeded"));
    signal.addEventListener("abort", abort, { once: true });
    session.on("error", reject);
    session.on("close", () => signal.removeEventListener("abort", abort));
    const stream = session.request({
      ":method": "POST",
      ":path": "/grpc.health.v1.Health/Check",
      "content-type": "application/grpc",
      te: "trailers",
    });
    const chunks: Buffer[] = [];
    let size = 0;
    let grpcStatus = "";
    const noteStatus = (headers: Record<string, unknown>): void => {
      if (typeof headers["grpc-status"] === "string") grpcStatus = headers["grpc-status"];
    };
    stream.on("response", noteStatus);
    stream.on("trailers", noteStatus);
    stream.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= bodyBytesMax) chunks.push(chunk);
      else stream.close();
    });
    stream.on("error", reject);
    stream.on("close", () => {
      session.close();
      resolve(grpcResult(Buffer.concat(chunks), grpcStatus));
    });
    stream.end(grpcMessage(service));
  });
}

function grpcMessage(service: string): Buffer {
  const name = Buffer.from(service, "utf8").subarray(0, 127);
  const body = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a, name.length]), name]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/** The answer's field 1 is the status; 1 is SERVING. */
function grpcResult(bytes: Buffer, grpcStatus: string): CheckResult {
  if (grpcStatus !== "0" && grpcStatus !== "")
    return { isOk: false, message: `health rpc failed with code ${grpcStatus}` };
  const serving = bytes.length >= 7 && bytes[5] === 0x08 && bytes[6] === 1;
  return { isOk: serving, message: serving ? "" : "service unhealthy (responded with a status other than SERVING)" };
}
