import { type ApiError, expired } from "@agent-sandbox/api";
import type { KubeRequest, KubeResponse, Transport } from "@agent-sandbox/kube";
import { actionOf } from "./logging-transport.ts";

type Forward = () => Promise<KubeResponse>;

interface Rule {
  readonly action: string;
  left: number;
  readonly answer: (forward: Forward, request: KubeRequest) => Promise<KubeResponse>;
}

/** Stands between the controllers and the server: fails chosen requests, acts before them, and holds back watches. */
export class Interceptor {
  /** Every request of the controllers, as an action. */
  readonly seen: string[] = [];
  readonly #rules: Rule[] = [];
  readonly #frozen = new Set<string>();
  readonly #lost = new Set<string>();
  #thaws: (() => void)[] = [];

  /** For `WorldOptions.disturb`. */
  readonly wrap = (transport: Transport): Transport => ({
    request: (request) => this.#request(transport, request),
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  });

  /** The next so many requests of this kind are not carried out and answered with this error. */
  refuse(action: string, error: ApiError, times = 1): void {
    this.#rules.push({ action, left: times, answer: async () => errorResponse(error) });
  }

  /** Something happens in the instant before the next request of this kind arrives. */
  before(action: string, act: (request: KubeRequest) => Promise<unknown>, times = 1): void {
    this.#rules.push({
      action,
      left: times,
      answer: async (forward, request) => {
        await act(request);
        return forward();
      },
    });
  }

  /** The next request of this kind is carried out and its answer lost. */
  loseAnswer(action: string): void {
    const answer = async (forward: Forward): Promise<KubeResponse> => {
      await forward();
      throw new Error("connection reset");
    };
    this.#rules.push({ action, left: 1, answer });
  }

  /** From now on the controllers see no event of this kind. */
  freeze(resource: string): void {
    this.#frozen.add(resource);
  }

  /** Everything held back is delivered. */
  thaw(): void {
    this.#frozen.clear();
    for (const thaw of this.#thaws.splice(0)) thaw();
  }

  /** What is held back of a resource is never delivered: its watch ends, is too old to go on, and is begun anew from a list. */
  lose(resource: string): void {
    this.refuse(`watch ${resource}`, expired("too old resource version"));
    this.#lost.add(resource);
    this.thaw();
  }

  /** How often the controllers sent this. */
  count(action: string): number {
    return this.seen.filter((entry) => entry === action).length;
  }

  async #request(transport: Transport, request: KubeRequest): Promise<KubeResponse> {
    const action = actionOf(request);
    this.seen.push(action);
    const rule = this.#rules.find((entry) => entry.action === action && entry.left > 0);
    if (rule !== undefined) {
      rule.left -= 1;
      return rule.answer(() => transport.request(request), request);
    }
    const response = await transport.request(request);
    if (!action.startsWith("watch ")) return response;
    return { ...response, body: this.#hold(action.slice("watch ".length), response.body) };
  }

  async *#hold(resource: string, body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of body) {
      while (this.#frozen.has(resource)) await new Promise<void>((resolve) => this.#thaws.push(resolve));
      if (this.#lost.delete(resource)) return;
      yield chunk;
    }
  }
}

function errorResponse(error: ApiError): KubeResponse {
  const body = Buffer.from(JSON.stringify(error.toStatus()));
  return {
    status: error.status,
    headers: { "content-type": "application/json" },
    body: (async function* () {
      yield body;
    })(),
  };
}
