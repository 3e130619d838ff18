import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

// Node gives a request of HTTP/2 to the same handlers as one of HTTP/1.1, as an object of another class that has the methods of the first. The types of the two do not
// overlap, so that the way back is a cast through `unknown`; it is made here alone, behind the version that tells them apart.

/** The request as Node's HTTP/2 made it; undefined for one of HTTP/1.1. */
export function http2RequestOf(request: IncomingMessage): Http2ServerRequest | undefined {
  if (request.httpVersionMajor < 2) return undefined;
  // The version says which class it is.
  return request as unknown as Http2ServerRequest;
}

/** The response as Node's HTTP/2 made it; undefined for one of HTTP/1.1. */
export function http2ResponseOf(response: ServerResponse): Http2ServerResponse | undefined {
  if (response.req.httpVersionMajor < 2) return undefined;
  // The version says which class it is.
  return response as unknown as Http2ServerResponse;
}
