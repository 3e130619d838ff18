import type { KubeRequest, KubeResponse, Transport, UpgradedConnection, UpgradeRequest } from "../transport.ts";

/** One answer, played once. `hold` keeps the body open until the request is aborted, as an idle watch does. */
export interface ScriptedAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly lines?: readonly unknown[];
  readonly hold?: boolean;
  /** The connection breaks after the lines. */
  readonly breaks?: boolean;
}

/** Plays answers in order and remembers what was asked, for tests of the wire protocol alone. */
export class ScriptedTransport implements Transport {
  readonly requests: KubeRequest[] = [];
  readonly #answers: ScriptedAnswer[];

  constructor(answers: readonly ScriptedAnswer[]) {
    this.#answers = [...answers];
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    this.requests.push(request);
    const answer = this.#answers.shift() ?? { hold: true };
    return { status: answer.status ?? 200, headers: answer.headers ?? {}, body: play(answer, request.signal) };
  }

  upgrade(_request: UpgradeRequest): Promise<UpgradedConnection> {
    return Promise.reject(new Error("the script has no upgrade"));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

async function* play(
  { body, lines = [], hold, breaks }: ScriptedAnswer,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (body !== undefined) yield Buffer.from(JSON.stringify(body));
  for (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`);
  if (breaks === true) throw new Error("connection reset");
  if (hold !== true) return;
  await new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
}
