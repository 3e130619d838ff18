import { validateHeaderName, validateHeaderValue } from "node:http";
import { type ResponseHead, ResponseParser } from "../../../packages/server/src/router/proxy/response-parser.ts";
import { WebsocketFrames } from "../../../packages/server/src/router/proxy/websocket-frames.ts";
import { RoutingError } from "../../../packages/server/src/router/routing-error.ts";
import { type FuzzTarget, pieces, promise, refusing } from "../fuzz-target.ts";

interface Answer {
  readonly heads: ResponseHead[];
  body: string;
  trailers?: readonly string[];
  isRefused: boolean;
}

function parse(parts: readonly Buffer[], method: string): Answer {
  const answer: Answer = { heads: [], body: "", isRefused: false };
  const parser = new ResponseParser({
    onInformation: (head) => answer.heads.push(head),
    onHead: (head) => answer.heads.push(head),
    onBody: (chunk) => (answer.body += chunk.toString("latin1")),
    onEnd: (trailers) => (answer.trailers = trailers),
  });
  parser.expect(method);
  const done = refusing(
    () => {
      for (const part of parts) parser.push(part);
      parser.end();
      return true;
    },
    (error) => error instanceof RoutingError,
  );
  answer.isRefused = done === undefined;
  return answer;
}

/** Whatever a parser lets through must be fit to be written to the caller. */
function checkHead({ status, statusText, headers }: ResponseHead): void {
  promise(status >= 100 && status <= 999, `status ${status}`);
  validateHeaderValue("status-text", statusText);
  for (let at = 0; at < headers.length; at += 2) {
    validateHeaderName(headers[at] as string);
    validateHeaderValue(headers[at] as string, headers[at + 1] as string);
  }
}

/** What a sandbox answers to a forwarded request. */
export const httpResponse: FuzzTarget = {
  name: "http-response",
  seeds: [
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;e=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close, X-A\r\n\r\n",
    "HTTP/1.0 200 OK\r\n\r\nall of it",
  ],
  dictionary: [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\0",
    ": ",
    "Content-Length: ",
    "Transfer-Encoding: chunked",
    "Connection: ",
    "0\r\n",
    "HTTP/1.1 101 \r\n",
    "\x7f",
    "\xff",
  ],
  run(input) {
    const method = (input[0] ?? 0) % 5 === 0 ? "HEAD" : "GET";
    const whole = parse([input], method);
    for (const head of whole.heads) checkHead(head);
    const { trailers = [] } = whole;
    for (let at = 0; at < trailers.length; at += 2)
      validateHeaderValue(trailers[at] as string, trailers[at + 1] as string);
    const cut = parse(pieces(input), method);
    promise(cut.isRefused === whole.isRefused, "where bytes are cut decides whether they are refused");
    if (!whole.isRefused)
      promise(JSON.stringify(cut) === JSON.stringify(whole), "where bytes are cut changes the answer");
  },
};

/** Frames of a WebSocket that passes through the router. */
export const websocketFrames: FuzzTarget = {
  name: "websocket-frames",
  seeds: [
    Buffer.from([0x81, 0x05, ...Buffer.from("hello"), 0x88, 0x02, 3, 0xe8]),
    Buffer.from([0x82, 0xfe, 0, 3, 1, 2, 3, 4, 9, 9, 9]),
    Buffer.from([0x82, 127, 0, 0, 0, 0, 0, 0, 0, 2, 7, 7]),
  ],
  dictionary: [
    "\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
    "\x7f\x00\x00\x00\x00\x00\x00\x00\x01",
    "\x7e\x00\x00",
    "\x88\x00",
    "\x81\x80",
  ],
  run(input) {
    const whole = new WebsocketFrames();
    whole.push(input);
    const cut = new WebsocketFrames();
    for (const part of pieces(input)) cut.push(part);
    promise(whole.isBetween === cut.isBetween, "where bytes are cut changes where frames end");
    const taken = new WebsocketFrames();
    promise(taken.pushToBoundary(input) <= input.length, "more was taken than came");
  },
};
