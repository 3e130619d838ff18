import {
  type ApiError,
  conflict,
  expired,
  internalError,
  notFound,
  serviceUnavailable,
  tooManyRequests,
} from "@agent-sandbox/api";
import { type Clock, delay } from "../clock.ts";
import { readLines } from "../line-reader.ts";
import type { KubeRequest, KubeResponse, Transport, UpgradedConnection, UpgradeRequest } from "../transport.ts";

/** How likely each fault is, between 0 and 1; default 0. One roll per request, or per event of a watch. */
export interface FaultRates {
  /** The write is refused with 409 and not carried out. */
  readonly conflict?: number;
  /** 404 for an object that may be there. */
  readonly notFound?: number;
  /** 410 for a watch or a list. */
  readonly gone?: number;
  /** 500, 503 or 429, not carried out. */
  readonly serverError?: number;
  /** No answer, and the request was not carried out. */
  readonly lostRequest?: number;
  /** No answer, although the request was carried out. */
  readonly lostAnswer?: number;
  /** A watch breaks before an event, so that it is seen only after a resume. */
  readonly watchBreak?: number;
  /** An event of a watch comes twice. */
  readonly eventDoubled?: number;
  /** An event is lost and the watch ends with 410, as when the server compacted meanwhile: only a relist brings it back. */
  readonly eventDropped?: number;
  /** Events wait for up to `delayMaxMs` before they are delivered, so that caches lag. */
  readonly eventDelayed?: number;
}

/** Where faults come from. */
export interface FaultyTransportOptions {
  /** The real one. */
  readonly transport: Transport;
  /** Between 0 and 1; seed it, and print the seed when a test fails. */
  readonly random: () => number;
  readonly clock: Clock;
  /** Asked at every roll, so that a test may turn faults on and off and treat some requests worse than others. */
  readonly rates: (request: KubeRequest) => FaultRates;
  /** The longest delay of an event; default 5 s. */
  readonly delayMaxMs?: number;
  /** Told of each fault as it is injected. */
  readonly onFault?: (fault: keyof FaultRates, request: KubeRequest) => void;
}

/** A connection that broke, as a socket would say it. */
class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
  readonly code = "ECONNRESET";
}

/** A transport that fails as networks and busy servers do, in front of a real one; upgrades pass untouched. */
export class FaultyTransport implements Transport {
  readonly #options: FaultyTransportOptions;

  constructor(options: FaultyTransportOptions) {
    this.#options = options;
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    const refused = this.#refusal(request);
    if (refused !== undefined) return errorResponse(refused);
    if (this.#roll("lostRequest", request)) throw new ConnectionLost("request lost");
    const response = await this.#options.transport.request(request);
    if (isWatch(request) && response.status === 200) return { ...response, body: this.#spoil(request, response) };
    if (!this.#roll("lostAnswer", request)) return response;
    for await (const _ of response.body);
    throw new ConnectionLost("answer lost");
  }

  upgrade(request: UpgradeRequest): Promise<UpgradedConnection> {
    return this.#options.transport.upgrade(request);
  }

  close(): Promise<void> {
    return this.#options.transport.close();
  }

  #refusal(request: KubeRequest): ApiError | undefined {
    const subject = { resource: "objects", name: request.path };
    const isWrite = request.method === "PUT" || request.method === "PATCH" || request.method === "DELETE";
    if (isWrite && this.#roll("conflict", request)) return conflict(subject, "injected");
    if (request.method !== "POST" && !isCollection(request) && this.#roll("notFound", request))
      return notFound(subject);
    if (isCollection(request) && this.#roll("gone", request)) return expired("injected");
    if (!this.#roll("serverError", request)) return undefined;
    const kinds = [internalError("injected"), serviceUnavailable("injected"), tooManyRequests("injected", 1)];
    return kinds[Math.floor(this.#options.random() * kinds.length)];
  }

  async *#spoil(request: KubeRequest, { body }: KubeResponse): AsyncGenerator<Uint8Array> {
    const { random, clock, delayMaxMs = 5_000 } = this.#options;
    const signal = request.signal ?? new AbortController().signal;
    for await (const text of readLines(body)) {
      const line = Buffer.from(`${text}\n`);
      if (this.#roll("eventDelayed", request)) await delay(clock, random() * delayMaxMs, signal);
      if (this.#roll("watchBreak", request)) throw new ConnectionLost("watch broke");
      if (this.#roll("eventDropped", request)) {
        yield Buffer.from(`${JSON.stringify({ type: "ERROR", object: expired("injected").toStatus() })}\n`);
        return;
      }
      yield line;
      if (this.#roll("eventDoubled", request)) yield line;
    }
  }

  #roll(fault: keyof FaultRates, request: KubeRequest): boolean {
    const { random, rates, onFault } = this.#options;
    const rate = rates(request)[fault] ?? 0;
    if (rate === 0 || random() >= rate) return false;
    onFault?.(fault, request);
    return true;
  }
}

function isWatch({ path }: KubeRequest): boolean {
  return /[?&]watch=(true|1)\b/.test(path);
}

/** List and watch carry a query that says so; an object's path does not. */
function isCollection(request: KubeRequest): boolean {
  return request.method === "GET" && (isWatch(request) || /[?&](limit|continue)=/.test(request.path));
}

function errorResponse(error: ApiError): KubeResponse {
  const body = Buffer.from(JSON.stringify(error.toStatus()));
  return { status: error.status, headers: { "content-type": "application/json" }, body: once(body) };
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
