import type { IncomingMessage } from "node:http";
import { createServer, type Server } from "node:https";
import type { KubeObject } from "@agent-sandbox/api";
import { convertObject } from "@agent-sandbox/api";
import type { IssuedCertificate } from "./webhook-certificates.ts";

/** A ConversionReview as API servers send it. */
export interface ConversionReview {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request?: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects?: readonly KubeObject[];
  };
}

/** The answer to a review. */
export interface ConversionAnswer {
  readonly apiVersion: string;
  readonly kind: string;
  readonly response: {
    readonly uid: string;
    readonly convertedObjects?: readonly KubeObject[];
    readonly result: { readonly status: "Success" | "Failure"; readonly message?: string };
  };
}

/** API servers send whole lists; ten thousand Sandboxes are some tens of megabytes. */
const bodyMaxBytes = 128 * 1024 * 1024;

/** Converts a batch: all or nothing, in order. Undefined when there is nothing to answer. Exported for tests. */
export function answerReview(
  review: ConversionReview,
  onPanic: (error: unknown) => void,
): ConversionAnswer | undefined {
  const { request, apiVersion, kind } = review;
  if (request === undefined || typeof request.uid !== "string") return undefined;
  const { uid, desiredAPIVersion, objects = [] } = request;
  try {
    const convertedObjects = objects.map((object) => convertObject(object, desiredAPIVersion));
    return { apiVersion, kind, response: { uid, convertedObjects, result: { status: "Success" } } };
  } catch (error) {
    onPanic(error);
    const message = error instanceof Error ? error.message : String(error);
    return { apiVersion, kind, response: { uid, result: { status: "Failure", message } } };
  }
}

/** A running webhook. */
export interface ConversionWebhook extends AsyncDisposable {
  readonly port: number;
  /** Serves with another certificate from now on; open connections stay. */
  renew(certificate: IssuedCertificate): void;
}

/** Serves `POST /convert` over TLS. */
export async function openConversionWebhook(options: {
  readonly port: number;
  readonly certificate: IssuedCertificate;
  readonly onPanic: (error: unknown) => void;
}): Promise<ConversionWebhook> {
  const { certificate } = options;
  const server = createServer(
    { cert: certificate.certificatePem, key: certificate.privateKeyPem },
    (request, response) => {
      answer(request, options.onPanic)
        .then(({ status, body }) => response.writeHead(status, { "content-type": "application/json" }).end(body))
        .catch((error: unknown) => response.writeHead(400).end(String(error)));
    },
  );
  const port = await listen(server, options.port);
  return {
    port,
    renew: ({ certificatePem, privateKeyPem }) => server.setSecureContext({ cert: certificatePem, key: privateKeyPem }),
    [Symbol.asyncDispose]: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  request: IncomingMessage,
  onPanic: (error: unknown) => void,
): Promise<{ status: number; body: string }> {
  if (request.url?.split("?")[0] !== "/convert") return { status: 404, body: "not found" };
  const review = JSON.parse(await readBody(request)) as ConversionReview;
  const result = answerReview(review, onPanic);
  return result === undefined
    ? { status: 400, body: "the review has no request" }
    : { status: 200, body: JSON.stringify(result) };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > bodyMaxBytes) throw new Error(`the review is larger than ${bodyMaxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, () => {
      server.off("error", reject);
      const bound = server.address();
      resolve(typeof bound === "object" && bound !== null ? bound.port : port);
    });
  });
}
