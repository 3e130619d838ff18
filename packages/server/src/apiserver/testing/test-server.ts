import { readFileSync } from "node:fs";
import type { JsonObject } from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import { openStore } from "../../store/sqlite-store.ts";
import type { Store } from "../../store/store.ts";
import { silentLogger } from "../../telemetry/logger.ts";
import { ApiServer, type ApiServerOptions } from "../api-server.ts";
import { isWholeBody } from "../request/api-request.ts";
import type { UserInfo } from "../request/user-info.ts";

/** Who tests act as unless they say otherwise. */
export const admin: UserInfo = { username: "admin", groups: ["system:masters", "system:authenticated"] };

/** A clock that moves only when told to. */
export class ManualClock implements Clock {
  #nowMs: number;
  #timers: { dueMs: number; fire: () => void }[] = [];

  constructor(nowMs = Date.parse("2026-03-01T10:00:00Z")) {
    this.#nowMs = nowMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, fire: () => void): () => void {
    const timer = { dueMs: this.#nowMs + delayMs, fire };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Moves on and fires what is due, earliest first. */
  advance(ms: number): void {
    this.#nowMs += ms;
    const due = this.#timers.filter((timer) => timer.dueMs <= this.#nowMs).sort((a, b) => a.dueMs - b.dueMs);
    this.#timers = this.#timers.filter((timer) => !due.includes(timer));
    for (const timer of due) timer.fire();
  }
}

/** An answer, read to its end. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** The body as JSON; an empty object when it is empty. */
  readonly body: JsonObject;
}

/** What a call may say besides method and path. */
export interface CallOptions {
  readonly body?: unknown;
  readonly type?: string;
  readonly accept?: string;
  readonly user?: UserInfo;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** An API server over a store in memory. */
export class TestServer implements AsyncDisposable {
  readonly clock = new ManualClock();
  readonly store: Store;
  readonly api: ApiServer;

  constructor(options: Partial<ApiServerOptions> = {}) {
    this.store = openStore({ path: ":memory:", clock: this.clock });
    this.api = new ApiServer({
      store: this.store,
      clock: this.clock,
      logger: silentLogger(),
      authorizer: { authorize: () => ({ verdict: "allow", reason: "test" }) },
      ...options,
    });
  }

  /** One request, read to its end. Never use it for a watch. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const { body, type, accept, user = admin, headers = {} } = options;
    const bytes =
      body === undefined || body instanceof Uint8Array || typeof body === "string" ? body : JSON.stringify(body);
    const response = await this.api.handle({
      method,
      path,
      user,
      headers: {
        ...headers,
        ...(type === undefined ? {} : { "content-type": type }),
        ...(accept === undefined ? {} : { accept }),
      },
      ...(bytes === undefined ? {} : { body: bytes }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const chunks: Uint8Array[] = [];
    if (isWholeBody(response.body)) chunks.push(...response.body);
    else for await (const chunk of response.body) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const isJson = response.headers["content-type"]?.startsWith("application/json") === true && !text.includes("}\n{");
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: isJson && text !== "" ? (JSON.parse(text) as JsonObject) : {},
    };
  }

  /** Opens a watch; gives its frames one by one. */
  async *watch(
    path: string,
    signal: AbortSignal,
    accept?: string,
  ): AsyncGenerator<{ type: string; object: JsonObject }> {
    const response = await this.api.handle({
      method: "GET",
      path,
      user: admin,
      signal,
      headers: accept === undefined ? {} : { accept },
    });
    if (isWholeBody(response.body)) throw new Error(`no watch: ${Buffer.concat(response.body).toString()}`);
    let rest = "";
    for await (const chunk of response.body) {
      rest += Buffer.from(chunk).toString();
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const text of lines) yield JSON.parse(text) as { type: string; object: JsonObject };
    }
  }

  /** Installs our own CRDs. */
  async installOwnCrds(): Promise<void> {
    await this.api.installCrds(ownCrds());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api.close();
    await this.store.close();
  }
}

/** Our CRDs as the specification has them. */
export function ownCrds(): JsonObject[] {
  return JSON.parse(
    readFileSync(new URL("../../../../../spec/builtin/crds.json", import.meta.url), "utf8"),
  ) as JsonObject[];
}

/** A pod that passes validation. */
export function podBody(name: string, spec: JsonObject = {}, metadata: JsonObject = {}): JsonObject {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, ...metadata },
    spec: { containers: [{ name: "main", image: "example.com/app:1" }], ...spec },
  };
}

/** A sandbox that passes validation. */
export function sandboxBody(name: string, spec: JsonObject = {}, metadata: JsonObject = {}): JsonObject {
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, ...metadata },
    spec: { podTemplate: { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } }, ...spec },
  };
}
