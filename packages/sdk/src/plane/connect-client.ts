import { codeOfConnect, codeOfStatus, SandboxError } from "../errors/sandbox-error.ts";
import { type DataPlane, daemonPort, type PlaneResponse, readText } from "./data-plane.ts";
import { decodeEnvelopes, EnvelopeError, encodeEnvelope, endStreamFlag } from "./envelope.ts";
import { decodeMessage, encodeMessage, type MessageType, ProtobufError } from "./protobuf.ts";

/** A Connect error as JSON. */
interface ConnectFailure {
  readonly code?: string;
  readonly message?: string;
}

/** Options of one call. */
export interface RpcOptions {
  readonly signal?: AbortSignal | undefined;
}

/** The types of a stream's messages; a stream that has them travels in binary, one without in JSON. */
export interface StreamTypes {
  readonly request: MessageType;
  readonly response: MessageType;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const jsonStream = "application/connect+json";
const binaryStream = "application/connect+proto";

/**
 * Speaks the Connect protocol to sandboxd, with JSON bodies but for streams of output. Hand-written, because the generated stubs and their runtime
 * take longer to load than most scripts run; the messages are those of `spec/proto`, with `bytes` as base64 and 64-bit
 * numbers as strings.
 */
export class ConnectClient {
  readonly #plane: DataPlane;

  constructor(plane: DataPlane) {
    this.#plane = plane;
  }

  /** One message each way. `method` is `package.Service/Method`. */
  async unary<T>(method: string, message: object, { signal }: RpcOptions = {}): Promise<T> {
    const response = await this.#plane.request({
      method: "POST",
      port: daemonPort,
      path: `/${method}`,
      headers: { "content-type": "application/json", "connect-protocol-version": "1" },
      body: JSON.stringify(message),
      signal,
    });
    const text = await readText(response.body);
    if (response.status !== 200) throw refusalOf(method, response, text);
    return parseMessage<T>(method, text);
  }

  /** One message out, many back. Ends normally only when the server said so. */
  async *stream<T extends object>(
    method: string,
    message: object,
    { signal, types }: RpcOptions & { readonly types?: StreamTypes } = {},
  ): AsyncGenerator<T> {
    const body = types === undefined ? encoder.encode(JSON.stringify(message)) : encodeMessage(types.request, message);
    const response = await this.#plane.request({
      method: "POST",
      port: daemonPort,
      path: `/${method}`,
      headers: {
        "content-type": types === undefined ? jsonStream : binaryStream,
        "connect-protocol-version": "1",
      },
      body: encodeEnvelope(body),
      signal,
    });
    if (response.status !== 200) throw refusalOf(method, response, await readText(response.body));
    const binary = response.headers["content-type"] === binaryStream ? types?.response : undefined;
    try {
      for await (const { flags, body } of decodeEnvelopes(response.body)) {
        // The end is JSON in either form.
        if ((flags & endStreamFlag) !== 0) return assertCleanEnd(method, decoder.decode(body));
        yield binary === undefined ? parseMessage<T>(method, decoder.decode(body)) : decodeMessage<T>(binary, body);
      }
    } catch (error) {
      throw lostUnless(method, error, signal);
    }
    throw new SandboxError("connection-lost", `${method}: the stream broke off`);
  }
}

function parseMessage<T>(method: string, text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new SandboxError("protocol-error", `${method}: the answer is not JSON`, { cause });
  }
}

function assertCleanEnd(method: string, text: string): void {
  const { error } = parseMessage<{ error?: ConnectFailure }>(method, text);
  if (error !== undefined) throw failureOf(method, error);
}

/** A broken connection, told apart from what the server said and from a cancelled call. */
function lostUnless(method: string, error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (error instanceof SandboxError) return error;
  const isNonsense = error instanceof ProtobufError || (error instanceof EnvelopeError && !error.isTruncated);
  const code = isNonsense ? "protocol-error" : "connection-lost";
  const why = error instanceof Error ? error.message : String(error);
  return new SandboxError(code, `${method}: ${why}`, { cause: error });
}

function refusalOf(method: string, response: PlaneResponse, text: string): SandboxError {
  const parsed = tryParse(text);
  const requestId = response.headers["x-request-id"];
  if (typeof parsed?.code === "string") return failureOf(method, parsed, requestId);
  const message = `${method}: the sandbox answered ${response.status}${text === "" ? "" : `: ${text.trim().slice(0, 500)}`}`;
  // No daemon of ours, or one that is older than this call.
  const code = response.status === 404 ? "unsupported" : codeOfStatus(response.status);
  return new SandboxError(code, message, { requestId });
}

function failureOf(method: string, { code, message }: ConnectFailure, requestId?: string): SandboxError {
  const name = method.slice(method.lastIndexOf("/") + 1);
  return new SandboxError(codeOfConnect(code), message ?? `${name} failed: ${code ?? "unknown"}`, { requestId });
}

function tryParse(text: string): ConnectFailure | undefined {
  try {
    return JSON.parse(text) as ConnectFailure;
  } catch {
    return undefined;
  }
}
