import type { DataPlane, PlaneRequest, PlaneResponse } from "../plane/data-plane.ts";
import { encodeEnvelope, endStreamFlag } from "../plane/envelope.ts";

/** Answers requests one after the other and remembers them. */
export class ScriptedPlane implements DataPlane {
  readonly requests: PlaneRequest[] = [];
  readonly #answers: (() => PlaneResponse | Promise<PlaneResponse>)[];

  constructor(...answers: (() => PlaneResponse | Promise<PlaneResponse>)[]) {
    this.#answers = answers;
  }

  request(request: PlaneRequest): Promise<PlaneResponse> {
    this.requests.push(request);
    const answer = this.#answers.shift();
    if (answer === undefined) throw new Error(`no answer is left for ${request.method} ${request.path}`);
    return Promise.resolve().then(answer);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** One JSON answer. */
export function answer(status: number, body: unknown, headers: Record<string, string> = {}): () => PlaneResponse {
  return () => ({
    status,
    headers: { "content-type": "application/json", ...headers },
    body: one(JSON.stringify(body)),
  });
}

/** A stream of messages; `end` is the last message's body, and without it the stream just breaks off. */
export function stream(messages: readonly object[], end?: object): () => PlaneResponse {
  return () => ({ status: 200, headers: { "content-type": "application/connect+json" }, body: frames(messages, end) });
}

async function* one(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}

async function* frames(messages: readonly object[], end: object | undefined): AsyncGenerator<Uint8Array> {
  const encode = (value: object, flags: number): Uint8Array =>
    encodeEnvelope(new TextEncoder().encode(JSON.stringify(value)), flags);
  for (const message of messages) yield encode(message, 0);
  if (end !== undefined) yield encode(end, endStreamFlag);
}
