import { pathOf, pods } from "@agent-sandbox/api/resource";
import { apiErrorOf } from "@agent-sandbox/kube/kube-client";
import type { Engine } from "../engine/engine.ts";
import { asSandboxError } from "../errors/api-failure.ts";

/** Options of `logs`. */
export interface LogOptions {
  /** Go on with what is printed from now on. Default false. */
  readonly follow?: boolean;
  /** Only the last lines. */
  readonly tailLines?: number;
  /** Only what is not older; rounded up to whole seconds. */
  readonly sinceMs?: number;
  readonly timestamps?: boolean;
  /** Of the run before the last restart. */
  readonly previous?: boolean;
  readonly container?: string;
  readonly signal?: AbortSignal;
}

/** Streams what the sandbox's own process printed. */
export async function* readLogs(
  engine: Engine,
  pod: { readonly namespace: string; readonly name: string },
  { signal, sinceMs, ...options }: LogOptions,
): AsyncGenerator<Uint8Array> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) if (value !== undefined) search.set(name, String(value));
  if (sinceMs !== undefined) search.set("sinceSeconds", String(Math.ceil(sinceMs / 1000)));
  const path = `${pathOf(pods, pod)}/log?${search.toString()}`;
  const response = await engine.client.transport.request({
    method: "GET",
    path,
    ...(signal !== undefined && { signal }),
  });
  if (response.status !== 200) throw asSandboxError(`logs of ${pod.namespace}/${pod.name}`, await apiErrorOf(response));
  yield* response.body;
}
