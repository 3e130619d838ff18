import { setImmediate } from "node:timers/promises";
import type { KubeRequest, KubeResponse, Transport } from "@agent-sandbox/kube";
import { WorkQueue } from "@agent-sandbox/kube";
import { WarmQueue } from "../../packages/server/src/controllers/claim-binding/warm-queue.ts";
import { Mirror } from "../../packages/server/src/controllers/mirror.ts";
import { actionOf, bodyText } from "./logging-transport.ts";

/** A bug planted around the product: in what it sends, or in how one of its parts works. */
export interface Mutation {
  readonly name: string;
  /** What users do half of the time while the bug is planted: seeds are few, and most bugs need one kind of work. */
  readonly stress: string;
  /** Changes the requests of the controllers or the answers to them. */
  readonly wrap?: (transport: Transport, random: () => number) => Transport;
  /** Replaces a method until disposed. */
  readonly install?: () => Disposable;
}

type Body = { metadata?: Record<string, unknown>; spec?: unknown; status?: Record<string, unknown> };

const lateTurns = 30;

/** Rewrites the JSON body of one kind of request. */
function rewriting(name: string, action: string, stress: string, change: (body: Body) => Body): Mutation {
  return {
    name,
    stress,
    wrap: (transport) =>
      replacing(transport, action, async (request) => {
        // A request may be long on its way; with its preconditions that does no harm.
        for (let turn = 0; turn < lateTurns; turn++) await setImmediate();
        return transport.request(rewritten(request, change));
      }),
  };
}

function rewritten(request: KubeRequest, change: (body: Body) => Body): KubeRequest {
  const text = bodyText(request);
  return { ...request, body: JSON.stringify(change(text === "" ? {} : (JSON.parse(text) as Body))) };
}

function replacing(
  transport: Transport,
  action: string,
  request: (request: KubeRequest) => Promise<KubeResponse>,
): Transport {
  return {
    request: (original) => (actionOf(original) === action ? request(original) : transport.request(original)),
    upgrade: (original) => transport.upgrade(original),
    close: () => transport.close(),
  };
}

/** Answers as if the write had been made. */
function swallowing(name: string, action: string, stress: string): Mutation {
  return {
    name,
    stress,
    wrap: (transport, random) =>
      replacing(transport, action, (request) => {
        if (random() < 0.5) return transport.request(request);
        const { path, signal } = request;
        const [route = ""] = path.split("?");
        return transport.request({
          method: "GET",
          path: route.replace(/\/status$/, ""),
          ...(signal === undefined ? {} : { signal }),
        });
      }),
  };
}

function overriding<T extends object, K extends keyof T>(
  name: string,
  prototype: T,
  method: K,
  replacement: T[K],
): Mutation {
  return {
    name,
    stress: "pool rush",
    install: () => {
      const original = prototype[method];
      prototype[method] = replacement;
      return { [Symbol.dispose]: () => void (prototype[method] = original) };
    },
  };
}

const withoutVersion = (body: Body): Body => ({ ...body, metadata: { ...body.metadata, resourceVersion: undefined } });

const withOneId = (sleep: unknown): object =>
  typeof sleep === "object" && sleep !== null ? { sleep: { ...sleep, id: "1" } } : {};

/** The planted bugs: each must be found by some seed. */
export const mutations: readonly Mutation[] = [
  rewriting("member deletes without preconditions", "delete sandboxes", "pool rush", () => ({})),
  rewriting("transfer without a lock", "patch sandboxes", "pool rush", withoutVersion),
  rewriting("transfer that leaves the old owner", "patch sandboxes", "create claim", (body) => ({
    ...body,
    metadata: { ...body.metadata, ownerReferences: undefined },
  })),
  rewriting("claim status without its binding", "patch sandboxclaims/status", "create claim", (body) => ({
    ...body,
    status: { ...body.status, sandbox: undefined },
  })),
  rewriting("templates without their finalizer", "patch sandboxtemplates", "replace template", (body) => ({
    ...body,
    metadata: { ...body.metadata, finalizers: undefined },
  })),
  rewriting("wishes that all have one id", "patch sandboxes/status", "doze", (body) => ({
    ...body,
    status: { ...body.status, ...withOneId(body.status?.["sleep"]) },
  })),
  swallowing("a lost status of claims", "patch sandboxclaims/status", "create claim"),
  swallowing("a lost status of Sandboxes", "patch sandboxes/status", "toggle sandbox"),
  swallowing("deletes that are never sent", "delete pods", "toggle sandbox"),
  overriding("waiters that nobody wakes", WarmQueue.prototype, "wait", () => undefined),
  overriding("errors that are not tried again", WorkQueue.prototype, "retry", () => 0),
  overriding(
    "caches that forget own writes",
    Mirror.prototype as unknown as Mirror<never>,
    "wrote",
    ((object: unknown) => object) as never,
  ),
];
