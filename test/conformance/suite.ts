import { randomBytes } from "node:crypto";
import type { Credentials, Transport } from "@agent-sandbox/kube";
import { httpTransport } from "@agent-sandbox/kube";
import { type Answer, ApiCall, type Breakage, type CallOptions, type Json } from "./api-call.ts";

/** A server under test. */
export interface Target extends AsyncDisposable {
  /** Of a member of system:masters. */
  readonly admin: Credentials;
}

/** What a case works with. */
export interface CaseContext {
  /** Calls as the administrator. */
  readonly api: ApiCall;
  /** A namespace of this case alone, with its default ServiceAccount. */
  namespace(labels?: Readonly<Record<string, string>>): Promise<string>;
  /** A name that no other case uses, for objects without a namespace. */
  unique(prefix: string): string;
  /** Calls with this bearer token, or with no credentials at all. */
  withToken(token: string | undefined): ApiCall;
  /** Creates and insists on 201. */
  create(path: string, body: Json, options?: CallOptions): Promise<Json>;
  /** Reads and insists on 200. */
  get(path: string): Promise<Json>;
  /** Asks again until `look` gives something. */
  eventually<T>(look: () => Promise<T | undefined | false>): Promise<T>;
}

/** One behaviour of one verb. */
export interface Case {
  readonly title: string;
  readonly run: (context: CaseContext) => Promise<void>;
}

/** Cases about one part of the surface, and a server that is wrong in that part. */
export interface Group {
  readonly name: string;
  readonly cases: readonly Case[];
  /** A fault that at least one case must notice. */
  readonly breakage: Breakage;
}

/** Makes a case. */
export function kase(title: string, run: Case["run"]): Case {
  return { title, run };
}

/** Makes one case per row of a table. */
export function table<R extends readonly unknown[]>(
  rows: readonly (readonly [title: string, ...row: R])[],
  run: (context: CaseContext, ...row: R) => Promise<void>,
): Case[] {
  return rows.map(([title, ...row]) => ({ title, run: (context) => run(context, ...(row as unknown as R)) }));
}

/** How long a part that works in the background may take. */
const patienceMs = 20_000;

/** Runs cases against one server and removes what they made. */
export class Bench implements AsyncDisposable {
  readonly #target: Target;
  readonly #transport: Transport;
  readonly #opened: Transport[] = [];
  readonly #made: string[] = [];

  constructor(target: Target) {
    this.#target = target;
    this.#transport = httpTransport(target.admin, { protocol: "http1" });
  }

  /** Runs one case; rejects when it fails. */
  async run({ run }: Case, breakage?: Breakage): Promise<void> {
    await run(this.#context(new ApiCall(this.#transport, breakage)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const api = new ApiCall(this.#transport);
    await Promise.all(this.#made.map((name) => api.call("DELETE", `/api/v1/namespaces/${name}`)));
    await Promise.all([this.#transport, ...this.#opened].map((transport) => transport.close()));
  }

  #context(api: ApiCall): CaseContext {
    const unique = (prefix: string): string => `${prefix}-${randomBytes(4).toString("hex")}`;
    const insist = (answer: Answer, status: number): Json => {
      if (answer.status !== status) throw new Error(`expected ${status}, got ${answer.status}: ${answer.text}`);
      return answer.body;
    };
    return {
      api,
      unique,
      namespace: (labels) => this.#namespace(unique("case"), labels),
      withToken: (token) => {
        const { cert: _cert, key: _key, ...anonymous } = this.#target.admin;
        const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
        const transport = httpTransport(
          { ...anonymous, authorize: () => Promise.resolve(headers) },
          { protocol: "http1" },
        );
        this.#opened.push(transport);
        return new ApiCall(transport);
      },
      create: async (path, body, options = {}) => insist(await api.call("POST", path, { body, ...options }), 201),
      get: async (path) => insist(await api.call("GET", path), 200),
      eventually,
    };
  }

  async #namespace(name: string, labels: Readonly<Record<string, string>> = {}): Promise<string> {
    const api = new ApiCall(this.#transport);
    const body = { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
    const made = await api.call("POST", "/api/v1/namespaces", { body });
    if (made.status !== 201) throw new Error(`namespace ${name}: ${made.text}`);
    this.#made.push(name);
    await eventually(async () => {
      const { status } = await api.call("GET", `/api/v1/namespaces/${name}/serviceaccounts/default`);
      return status === 200;
    });
    return name;
  }
}

async function eventually<T>(look: () => Promise<T | undefined | false>): Promise<T> {
  const endMs = performance.now() + patienceMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > endMs) throw new Error(`not within ${patienceMs} ms: ${look.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
