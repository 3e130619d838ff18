import { ApiError, serviceUnavailable } from "@agent-sandbox/api/api-error";
import type { KubeList, KubeObject, StatusObject, WatchEvent } from "@agent-sandbox/api/meta";
import { apiVersionOf, pathOf, type Resource } from "@agent-sandbox/api/resource";
import type {
  CallOptions,
  Client,
  DeleteCollectionOptions,
  DeleteOptions,
  GetOptions,
  ListOptions,
  ObjectKey,
  Patch,
  PatchOptions,
  RawRequest,
  SelectOptions,
  WatchOptions,
  WriteOptions,
} from "./client.ts";
import { readLines } from "./line-reader.ts";
import {
  type KubeRequest,
  type KubeResponse,
  type RequestPriority,
  requestPriorityDefault,
  type Transport,
} from "./transport.ts";

/** What a client sends besides its requests. */
export interface ClientOptions {
  /** Sent as `user-agent`, which names field managers and appears in audit logs. */
  readonly userAgent?: string;
  /** Of calls that say none; default `requestPriorityDefault`. */
  readonly priority?: RequestPriority;
}

const patchTypes: Readonly<Record<Patch["type"], string>> = {
  json: "application/json-patch+json",
  merge: "application/merge-patch+json",
  strategic: "application/strategic-merge-patch+json",
  // JSON is YAML, and the media type is the only one that every server version knows.
  apply: "application/apply-patch+yaml",
};

/** Makes a client that speaks JSON through a transport. */
export function createClient(transport: Transport, options: ClientOptions = {}): Client {
  return new KubeClient(transport, options);
}

class KubeClient implements Client {
  readonly transport: Transport;
  readonly #options: ClientOptions;
  readonly #priority: RequestPriority;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(transport: Transport, options: ClientOptions) {
    const { userAgent = "agent-sandbox", priority = requestPriorityDefault } = options;
    this.transport = transport;
    this.#options = options;
    this.#priority = priority;
    this.#headers = { accept: "application/json", "user-agent": userAgent };
  }

  at(priority: RequestPriority): Client {
    return new KubeClient(this.transport, { ...this.#options, priority });
  }

  get<T extends KubeObject>(resource: Resource<T>, key: ObjectKey, options: GetOptions = {}): Promise<T> {
    const { resourceVersion, subresource } = options;
    const path = objectPath(resource, key, subresource) + query({ resourceVersion });
    return this.#call<T>({ method: "GET", path }, options);
  }

  async list<T extends KubeObject>(resource: Resource<T>, options: ListOptions = {}): Promise<KubeList<T>> {
    const { limit, resourceVersion, resourceVersionMatch } = options;
    const search = query({
      ...selection(options),
      limit,
      continue: options.continue,
      resourceVersion,
      resourceVersionMatch,
    });
    const list = await this.#call<KubeList<T>>(
      { method: "GET", path: collection(resource, options) + search },
      options,
    );
    // Servers leave both out of items; callers rely on them.
    list.items ??= [];
    for (const item of list.items) {
      item.apiVersion ??= apiVersionOf(resource);
      item.kind ??= resource.kind;
    }
    return list;
  }

  create<T extends KubeObject>(resource: Resource<T>, object: T, options: WriteOptions = {}): Promise<T> {
    const { namespace, name } = object.metadata;
    const { subresource } = options;
    const path = subresource
      ? objectPath(resource, { ...(namespace && { namespace }), name }, subresource)
      : pathOf(resource, { ...(namespace && { namespace }) });
    return this.#call<T>({ method: "POST", path: path + writeQuery(options), ...json(object) }, options);
  }

  update<T extends KubeObject>(resource: Resource<T>, object: T, options: WriteOptions = {}): Promise<T> {
    const path = objectPath(resource, object.metadata, options.subresource) + writeQuery(options);
    return this.#call<T>({ method: "PUT", path, ...json(object) }, options);
  }

  patch<T extends KubeObject>(
    resource: Resource<T>,
    key: ObjectKey,
    patch: Patch,
    options: PatchOptions = {},
  ): Promise<T> {
    const path = objectPath(resource, key, options.subresource) + writeQuery(options);
    return this.#call<T>({ method: "PATCH", path, ...json(patch.body, patchTypes[patch.type]) }, options);
  }

  async delete<T extends KubeObject>(
    resource: Resource<T>,
    key: ObjectKey,
    options: DeleteOptions = {},
  ): Promise<void> {
    const { uid, resourceVersion, dryRun, signal: _signal, priority: _priority, ...rest } = options;
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      ...rest,
      ...(dryRun === true && { dryRun: ["All"] }),
      ...((uid !== undefined || resourceVersion !== undefined) && { preconditions: { uid, resourceVersion } }),
    };
    await this.#call({ method: "DELETE", path: objectPath(resource, key), ...json(body) }, options);
  }

  async deleteCollection<T extends KubeObject>(
    resource: Resource<T>,
    options: DeleteCollectionOptions = {},
  ): Promise<void> {
    const { propagationPolicy, gracePeriodSeconds } = options;
    const body = { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy, gracePeriodSeconds };
    const path = collection(resource, options) + query(selection(options));
    await this.#call({ method: "DELETE", path, ...json(body) }, options);
  }

  async *watch<T extends KubeObject>(resource: Resource<T>, options: WatchOptions = {}): AsyncGenerator<WatchEvent<T>> {
    const { resourceVersion, allowWatchBookmarks, sendInitialEvents, timeoutSeconds, signal } = options;
    const search = query({
      ...selection(options),
      watch: true,
      resourceVersion,
      allowWatchBookmarks,
      timeoutSeconds,
      sendInitialEvents,
      resourceVersionMatch: sendInitialEvents === true ? "NotOlderThan" : undefined,
    });
    const request: KubeRequest = { method: "GET", path: collection(resource, options) + search };
    // It stays open for minutes: were it counted as under way, background requests would wait for its end.
    const response = await this.#send(request, { ...options, priority: "stream" });
    try {
      for await (const line of readLines(response.body)) {
        const event = JSON.parse(line) as WatchEvent<T>;
        if (event.type === "ERROR") throw ApiError.fromStatus(event.object, 500);
        yield event;
      }
    } catch (error) {
      throw failure(error, request, signal);
    }
  }

  raw<T>({ method, path, body, contentType }: RawRequest, options: CallOptions = {}): Promise<T> {
    return this.#call<T>({ method, path, ...(body !== undefined && json(body, contentType)) }, options);
  }

  async #call<R>(request: KubeRequest, options: CallOptions): Promise<R> {
    const response = await this.#send(request, options);
    try {
      const text = await readText(response);
      return (text === "" ? undefined : JSON.parse(text)) as R;
    } catch (error) {
      throw failure(error, request, options.signal);
    }
  }

  async #send(request: KubeRequest, options: CallOptions): Promise<KubeResponse> {
    const { signal, priority = this.#priority } = options;
    const headers = { ...this.#headers, ...request.headers };
    let response: KubeResponse;
    try {
      response = await this.transport.request({
        ...request,
        headers,
        priority,
        ...(signal !== undefined && { signal }),
      });
    } catch (error) {
      throw failure(error, request, signal);
    }
    if (response.status >= 200 && response.status < 300) return response;
    throw await apiErrorOf(response);
  }
}

/** The error that an answer tells of: its `Status` where it has one, else what its text says. */
export async function apiErrorOf(response: KubeResponse): Promise<ApiError> {
  const text = await readText(response).catch(() => "");
  const { status, headers } = response;
  const parsed = tryParseStatus(text) ?? { message: text.trim().slice(0, 1_000) || `the server answered ${status}` };
  const retryAfterSeconds = Number(headers["retry-after"]);
  const details = retryAfterSeconds > 0 ? { retryAfterSeconds, ...parsed.details } : parsed.details;
  return ApiError.fromStatus({ ...parsed, ...(details !== undefined && { details }) }, status);
}

function tryParseStatus(text: string): Partial<StatusObject> | undefined {
  try {
    const parsed = JSON.parse(text) as StatusObject | null;
    return parsed?.kind === "Status" ? parsed : undefined;
  } catch {
    return undefined;
  }
}

/** A request without an answer: cancelled, or the server could not be reached; whether it acted is then unknown. */
function failure(error: unknown, { method, path }: KubeRequest, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (error instanceof ApiError) return error;
  const why = error instanceof Error ? error.message : String(error);
  const wrapped = serviceUnavailable(`${method} ${path.split("?")[0]}: ${why}`);
  wrapped.cause = error;
  return wrapped;
}

async function readText({ body }: KubeResponse): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

function objectPath(resource: Resource<KubeObject>, key: ObjectKey, subresource?: string): string {
  const { name, namespace } = key;
  // An empty name would turn an operation on one object into one on all of them.
  if (name === "") throw new Error(`bug: ${resource.resource} without a name`);
  if (resource.namespaced && !namespace) throw new Error(`bug: ${resource.resource} ${name} without a namespace`);
  const path = pathOf(resource, { name, ...(resource.namespaced && namespace && { namespace }) });
  return subresource === undefined ? path : `${path}/${subresource}`;
}

function collection(resource: Resource<KubeObject>, { namespace }: SelectOptions): string {
  return pathOf(resource, { ...(namespace && { namespace }) });
}

function selection({ labelSelector, fieldSelector }: SelectOptions): QueryValues {
  return { labelSelector, fieldSelector };
}

function writeQuery({ fieldManager, fieldValidation, dryRun, force }: PatchOptions): string {
  return query({ fieldManager, fieldValidation, dryRun: dryRun === true ? "All" : undefined, force });
}

type QueryValues = Readonly<Record<string, string | number | boolean | undefined>>;

function query(values: QueryValues): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

function json(body: unknown, contentType = "application/json"): Pick<KubeRequest, "body" | "headers"> {
  return { body: JSON.stringify(body), headers: { "content-type": contentType } };
}
