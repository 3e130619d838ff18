import fc from "fast-check";
import { expect, test } from "vitest";
import { RoutingError } from "../routing-error.ts";
import { type ResponseHead, ResponseParser } from "./response-parser.ts";

interface Parsed {
  readonly informations: number[];
  head?: ResponseHead;
  body: string;
  trailers?: readonly string[];
  readonly isReusable: boolean;
  readonly isComplete: boolean;
}

/** Feeds pieces to a parser; `ends` says that the connection closed behind them. */
function parse(pieces: readonly string[], { method = "GET", ends = false } = {}): Parsed {
  const parsed: { informations: number[]; head?: ResponseHead; body: string; trailers?: readonly string[] } = {
    informations: [],
    body: "",
  };
  const parser = new ResponseParser({
    onInformation: ({ status }) => parsed.informations.push(status),
    onHead: (head) => (parsed.head = head),
    onBody: (chunk) => (parsed.body += chunk.toString("latin1")),
    onEnd: (trailers) => (parsed.trailers = trailers),
  });
  parser.expect(method);
  for (const piece of pieces) parser.push(Buffer.from(piece, "latin1"));
  const isComplete = ends ? parser.end() : parsed.trailers !== undefined;
  return { ...parsed, isReusable: parser.isReusable, isComplete };
}

const chunked =
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;ext=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\n";

test("ResponseParser: a sized body", () => {
  const parsed = parse(["HTTP/1.1 201 Made it\r\nContent-Length: 2\r\nX-A: 1\r\nx-a: 2\r\n\r\nok"]);
  expect(parsed).toMatchObject({ body: "ok", isComplete: true, isReusable: true });
  expect(parsed.head).toMatchObject({ status: 201, statusText: "Made it", contentLength: 2 });
  expect(parsed.head?.headers).toEqual(["Content-Length", "2", "X-A", "1", "x-a", "2"]);
});

test("ResponseParser: chunks with extensions and trailers", () => {
  const parsed = parse([chunked]);
  expect(parsed).toMatchObject({ body: "hello0123456789", trailers: ["X-Sum", "7"], isReusable: true });
  expect(parsed.head?.headers).toEqual(["Trailer", "X-Sum"]);
});

test("ResponseParser: wherever the bytes are cut, the answer is the same", () => {
  const whole = parse([chunked]);
  fc.assert(
    fc.property(fc.array(fc.nat(chunked.length), { maxLength: 12 }), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), chunked.length];
      const pieces = at.slice(1).map((end, index) => chunked.slice(at[index], end));
      expect(parse(pieces)).toEqual(whole);
    }),
  );
});

test("ResponseParser: informational answers come first", () => {
  const parsed = parse(["HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"]);
  expect(parsed).toMatchObject({ informations: [103], isComplete: true, isReusable: true });
});

test("ResponseParser: a body without length ends with the connection", () => {
  const text = "HTTP/1.0 200 OK\r\n\r\nall of it";
  expect(parse([text])).toMatchObject({ isComplete: false });
  expect(parse([text], { ends: true })).toMatchObject({ body: "all of it", isComplete: true, isReusable: false });
});

test("ResponseParser: a connection that ends too early is not complete", () => {
  expect(parse(["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"], { ends: true }).isComplete).toBe(false);
  expect(parse(["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"], { ends: true }).isComplete).toBe(false);
  expect(parse([""], { ends: true }).isComplete).toBe(false);
});

test("ResponseParser: answers without a body whatever their headers say", () => {
  const head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
  expect(parse([head], { method: "HEAD" })).toMatchObject({ isComplete: true, isReusable: true, body: "" });
  expect(parse(["HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"])).toMatchObject({ isComplete: true });
});

test("ResponseParser: headers of the connection do not pass", () => {
  const parsed = parse([
    "HTTP/1.1 200 OK\r\nConnection: close, X-Private\r\nKeep-Alive: timeout=5\r\nX-Private: 1\r\nContent-Length: 0\r\n\r\n",
  ]);
  expect(parsed.isReusable).toBe(false);
  const other = parse(["HTTP/1.1 200 OK\r\nConnection: X-Private\r\nX-Private: 1\r\nContent-Length: 0\r\n\r\n"]);
  expect(other).toMatchObject({ head: { headers: ["Content-Length", "0"] }, isReusable: true });
});

test("ResponseParser: a sandbox cannot say that it never saw the request", () => {
  const parsed = parse(["HTTP/1.1 502 Bad\r\nX-Sandbox-Unsent: true\r\nX-Other: 1\r\nContent-Length: 0\r\n\r\n"]);
  expect(parsed.head?.headers).toEqual(["X-Other", "1", "Content-Length", "0"]);
});

const refused: readonly (readonly [string, string])[] = [
  ["not HTTP", "SSH-2.0-OpenSSH\r\n\r\n"],
  ["HTTP/2", "HTTP/2 200 OK\r\n\r\n"],
  ["length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"],
  ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"],
  ["a signed length", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n"],
  ["another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"],
  ["a folded header", "HTTP/1.1 200 OK\r\nX: 1\r\n folded: 2\r\n\r\n"],
  ["a header with a blank", "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n"],
  ["a lone line feed in a value", "HTTP/1.1 200 OK\r\nX: 1\nSet-Cookie: a=b\r\n\r\n"],
  ["a NUL in the reason", "HTTP/1.1 200 O\0K\r\n\r\n"],
  ["a control character in a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: \x01a\r\n\r\n"],
  ["an unasked upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n"],
  ["a chunk size of words", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"],
  ["a chunk that is too long", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"],
  ["more than its answer", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"],
  ["an endless head", `HTTP/1.1 200 OK\r\nX: ${"a".repeat(70_000)}`],
];

test.each(refused)("ResponseParser: refuses %s", (_name, text) => {
  expect(() => parse([text])).toThrow(RoutingError);
});

test("ResponseParser: whatever a sandbox sends, it answers or refuses with a RoutingError", () => {
  const prefix = fc.constantFrom("", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  fc.assert(
    fc.property(prefix, fc.string({ unit: "binary-ascii", maxLength: 200 }), (head, tail) => {
      try {
        parse([head + tail], { ends: true });
      } catch (error) {
        expect(error).toBeInstanceOf(RoutingError);
      }
    }),
  );
});
