import type { Socket } from "node:net";
import { RoutingError } from "../routing-error.ts";
import type { Departure, Outbox } from "./outbox.ts";
import { type ResponseHead, ResponseParser, type ResponseSink } from "./response-parser.ts";

/** Told how an exchange on a connection goes; `onEnd` or `onFailure` comes last, once. */
export interface UpstreamExchange extends ResponseSink {
  /** The connection takes more of the request's body. */
  onDrain(): void;
  /** `isUntouched` says that not one byte came back: the connection may have been dead before the request was sent. */
  onFailure(error: Error, isUntouched: boolean): void;
}

/** One kept connection to a port of a sandbox; carries one exchange at a time. */
export class UpstreamConnection implements ResponseSink, Departure {
  readonly #socket: Socket;
  readonly #outbox: Outbox;
  readonly #parser: ResponseParser;
  readonly #onIdle: (connection: UpstreamConnection) => void;
  readonly #onGone: (connection: UpstreamConnection) => void;
  #exchange: UpstreamExchange | undefined;
  #isUntouched = true;
  #isRequestSent = false;
  /** When the last exchange ended; for the pool. */
  idleSinceMs = 0;
  /** Whether an exchange ran on it before. */
  isReused = false;

  constructor(
    socket: Socket,
    outbox: Outbox,
    on: { idle: (connection: UpstreamConnection) => void; gone: (connection: UpstreamConnection) => void },
  ) {
    this.#socket = socket;
    this.#outbox = outbox;
    this.#onIdle = on.idle;
    this.#onGone = on.gone;
    this.#parser = new ResponseParser(this);
    // Only a connection through the daemon emits what it reads; see Dialer.dial.
    socket.on("data", (chunk: Buffer) => this.take(chunk));
    socket.on("drain", () => this.#exchange?.onDrain());
    socket.once("end", () => this.#ended());
    socket.once("error", (error) => this.#fail(error));
    socket.once("close", () => {
      this.#fail(closedEarly());
      this.#onGone(this);
    });
    // A connection through the daemon comes paused, with what it has brought already.
    socket.resume();
  }

  /**
   * Sends the head of a request, together with what is written of its body in the same turn of the event loop: a sandbox is
   * woken once for both then. Preconditions: no exchange is under way.
   */
  begin(exchange: UpstreamExchange, method: string, head: string): void {
    this.#exchange = exchange;
    this.#isUntouched = true;
    this.#isRequestSent = false;
    this.#parser.expect(method);
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#outbox.post(this);
  }

  depart(): void {
    this.#socket.uncork();
  }

  /** Sends a piece of the request's body. Returns false where the caller should wait for `onDrain`. */
  write(chunk: Buffer | string): boolean {
    return this.#socket.write(chunk, "latin1");
  }

  /** The whole request was sent. */
  finishRequest(): void {
    this.#isRequestSent = true;
  }

  /** The answer's reader wants no more for now. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Gives the exchange up without telling it. */
  abort(): void {
    this.#exchange = undefined;
    this.#socket.destroy();
  }

  onInformation(head: ResponseHead): void {
    this.#exchange?.onInformation(head);
  }

  onHead(head: ResponseHead): void {
    this.#exchange?.onHead(head);
  }

  onBody(chunk: Buffer, isLast: boolean): void {
    this.#exchange?.onBody(chunk, isLast);
  }

  onEnd(trailers: readonly string[]): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    // An answer that came before the whole request leaves bytes on the way that the next answer would be taken for.
    if (this.#parser.isReusable && this.#isRequestSent && exchange !== undefined) {
      this.isReused = true;
      this.#onIdle(this);
    } else this.#socket.destroy();
    exchange?.onEnd(trailers);
  }

  /** Takes what arrived; the memory is the connection's from here on. */
  take(chunk: Buffer): void {
    this.#isUntouched = false;
    try {
      this.#parser.push(chunk);
    } catch (error) {
      // Also what a broken sink throws: the answer cannot be passed on.
      this.#fail(error instanceof RoutingError ? error : unusable(error));
      this.#socket.destroy();
    }
  }

  #ended(): void {
    if (!this.#parser.end()) this.#fail(closedEarly());
    this.#socket.destroy();
  }

  #fail(error: Error): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    exchange?.onFailure(error, this.#isUntouched);
  }
}

function closedEarly(): Error {
  return Object.assign(new Error("the sandbox closed the connection before its answer was complete"), {
    code: "ECONNRESET",
  });
}

function unusable(cause: unknown): RoutingError {
  return new RoutingError(502, "The backend sandbox sent an answer that cannot be passed on.", { cause });
}
