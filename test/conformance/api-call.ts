import type { KubeResponse, Transport } from "@agent-sandbox/kube";

/** JSON as it came over the wire; cases look into it without a schema, because a wrong shape is what they look for. */
// biome-ignore lint/suspicious/noExplicitAny: a typed view would hide what the server really sent.
export type Json = any;

/** An answer, read to its end. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** The body as JSON; undefined when it is none. */
  readonly body: Json;
}

/** What a call may say besides method and path. */
export interface CallOptions {
  readonly body?: unknown;
  /** Content type; default `application/json` where there is a body. */
  readonly type?: string;
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Acts as this user, by impersonation. */
  readonly as?: string;
  readonly asGroups?: string;
}

/** One frame of a watch. */
export interface Frame {
  readonly type: string;
  readonly object: Json;
}

/** What a server may be made to do wrong: sees request and answer, gives another answer. */
export type Breakage = (request: { method: string; path: string }, answer: Answer) => Answer;

/** Content types of patches, by their short names. */
export const patchTypes = {
  json: "application/json-patch+json",
  merge: "application/merge-patch+json",
  strategic: "application/strategic-merge-patch+json",
  apply: "application/apply-patch+yaml",
} as const;

/** Longest a watch is listened to before the case fails. */
const watchMaxMs = 15_000;

/** Calls one API server over HTTP and reads answers whole. */
export class ApiCall {
  readonly #transport: Transport;
  readonly #breakage: Breakage;

  constructor(transport: Transport, breakage: Breakage = (_request, answer) => answer) {
    this.#transport = transport;
    this.#breakage = breakage;
  }

  /** One request; never for a watch without a time limit. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const response = await this.#transport.request({ method, path, headers: headersOf(options), ...bodyOf(options) });
    return this.#breakage({ method, path }, await readAnswer(response));
  }

  /** Opens a watch, hands every frame to `until`, and gives all frames once that says true or the server ends the watch. */
  async watch(
    path: string,
    until: (frames: readonly Frame[]) => boolean,
    options: WatchOptions = {},
  ): Promise<Frame[]> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(new Error(`watch ${path}: not seen in time`)), watchMaxMs);
    const frames: Frame[] = [];
    try {
      const { headers, body, status } = await this.#transport.request({
        method: "GET",
        path,
        headers: headersOf(options),
        signal: stop.signal,
      });
      if (status !== 200)
        throw new Error(`watch ${path}: ${status} ${(await readAnswer({ status, headers, body })).text}`);
      await options.opened?.();
      if (until(frames)) return frames;
      for await (const frame of framesOf(body)) {
        const { body: object } = this.#breakage({ method: "WATCH", path }, answerOf(200, {}, JSON.stringify(frame)));
        frames.push(object as Frame);
        if (until(frames)) return frames;
      }
      return frames;
    } finally {
      clearTimeout(timer);
      stop.abort(new Error("the case has seen enough"));
    }
  }
}

/** What a watch may say, and what to do once it is open. */
export interface WatchOptions extends CallOptions {
  readonly opened?: () => Promise<unknown>;
}

function headersOf({ body, type, accept = "application/json", headers = {}, as, asGroups }: CallOptions) {
  return {
    accept,
    ...(body === undefined ? {} : { "content-type": type ?? "application/json" }),
    ...(as === undefined ? {} : { "impersonate-user": as }),
    ...(asGroups === undefined ? {} : { "impersonate-group": asGroups }),
    ...headers,
  };
}

function bodyOf({ body }: CallOptions): { body?: string | Uint8Array } {
  if (body === undefined) return {};
  return { body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body) };
}

async function readAnswer({ status, headers, body }: KubeResponse): Promise<Answer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return answerOf(status, headers, Buffer.concat(chunks).toString());
}

/** Builds an answer from what came over the wire. */
export function answerOf(status: number, headers: Readonly<Record<string, string>>, text: string): Answer {
  return { status, headers, text, body: parsed(text) };
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // Plain text, a watch or protobuf: the case looks at `text`.
  }
}

async function* framesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  let rest = "";
  for await (const chunk of body) {
    rest += Buffer.from(chunk).toString();
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line) as Frame;
  }
}
