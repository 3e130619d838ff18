import { request as httpsRequest } from "node:https";
import {
  apiVersionOf,
  asJson,
  asObject,
  internalError,
  isJsonObject,
  type JsonObject,
  type KubeObject,
} from "@agent-sandbox/api";
import { listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import type { ConversionWebhook } from "./crd-registry.ts";

/** Where a webhook listens and how it proves itself. */
export interface WebhookEndpoint {
  readonly url: string;
  readonly caBundle: string | undefined;
  /** The name in the webhook's certificate where the URL holds an address. */
  readonly serverName?: string;
}

/** Sends a review to a webhook and reads its answer. */
export type ReviewPost = (endpoint: WebhookEndpoint, review: JsonObject) => Promise<JsonObject>;

/** Finds an address behind a port of a Service; undefined where nothing is ready there. */
export type ServiceResolver = (service: ServicePort) => { host: string; port: number } | undefined;

/** A port of a Service, as a webhook configuration names it. */
export interface ServicePort {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
}

/** How a webhook is reached. */
export interface ConversionWebhookOptions {
  readonly uuid: () => string;
  /** Absent: only URLs can be asked. */
  readonly resolve?: ServiceResolver;
  /** Default: over TLS. */
  readonly post?: ReviewPost;
}

/** Bytes of a webhook's answer, at most. */
const answerMaxBytes = 16 * 1024 * 1024;

/** A webhook that has not answered by then has failed; Kubernetes' figure. */
const timeoutMs = 30_000;

/** Converts objects of users' CRDs by asking the webhook that their CRD names, by URL or by Service. */
export function conversionWebhook({ uuid, resolve, post = postReview }: ConversionWebhookOptions): ConversionWebhook {
  return async (crd, object, toVersion) => {
    const spec = objectAt(asJson(crd), "spec");
    const client = objectAt(objectAt(objectAt(spec, "conversion"), "webhook"), "clientConfig");
    const failed = (why: string) =>
      internalError(`conversion webhook for ${object.apiVersion}, Kind=${object.kind} failed: ${why}`);
    const endpoint = endpointOf(client, resolve);
    if (typeof endpoint === "string") throw failed(endpoint);
    const uid = uuid();
    const desiredAPIVersion = apiVersionOf({ group: stringAt(spec, "group") ?? "", version: toVersion });
    const review: JsonObject = {
      kind: "ConversionReview",
      apiVersion: "apiextensions.k8s.io/v1",
      request: { uid, desiredAPIVersion, objects: [asJson(object)] },
    };
    const answer = objectAt(await post(endpoint, review), "response");
    const result = objectAt(answer, "result");
    if (stringAt(answer, "uid") !== uid) throw failed("the answer is about another request");
    if (stringAt(result, "status") !== "Success") throw failed(stringAt(result, "message") ?? "no reason given");
    return checkConverted(object, listAt(answer, "convertedObjects")[0], { desiredAPIVersion, failed });
  };
}

/** Where the webhook listens, or a text that says why that is not known. */
function endpointOf(client: JsonObject | undefined, resolve: ServiceResolver | undefined): WebhookEndpoint | string {
  const caBundle = stringAt(client, "caBundle");
  const url = stringAt(client, "url");
  if (url !== undefined) return { url, caBundle };
  const service = objectAt(client, "service");
  if (service === undefined) return "clientConfig names neither a url nor a service";
  const [namespace, name] = [stringAt(service, "namespace") ?? "", stringAt(service, "name") ?? ""];
  const port = numberAt(service, "port") ?? 443;
  const found = resolve?.({ namespace, name, port });
  if (found === undefined) return `service ${namespace}/${name} has no ready endpoint for port ${port}`;
  const host = found.host.includes(":") ? `[${found.host}]` : found.host;
  const path = stringAt(service, "path") ?? "/";
  return { url: `https://${host}:${found.port}${path}`, caBundle, serverName: `${name}.${namespace}.svc` };
}

/** A webhook may change anything but who the object is. */
function checkConverted(
  object: KubeObject,
  converted: unknown,
  { desiredAPIVersion, failed }: { desiredAPIVersion: string; failed: (why: string) => Error },
): KubeObject {
  if (!isJsonObject(converted) || !isJsonObject(converted["metadata"])) throw failed("the answer holds no object");
  const result = asObject(converted);
  if (result.apiVersion !== desiredAPIVersion || result.kind !== object.kind)
    throw failed("the answer is of another kind or version");
  const { labels, annotations } = result.metadata;
  const metadata = { ...object.metadata };
  if (labels !== undefined) metadata.labels = labels;
  if (annotations !== undefined) metadata.annotations = annotations;
  return { ...result, metadata };
}

async function postReview({ url, caBundle, serverName }: WebhookEndpoint, review: JsonObject): Promise<JsonObject> {
  const body = JSON.stringify(review);
  const ca = caBundle === undefined ? undefined : Buffer.from(caBundle, "base64").toString();
  return new Promise((resolve, reject) => {
    const options = {
      method: "POST",
      timeout: timeoutMs,
      headers: { "content-type": "application/json" },
      ...(ca === undefined ? {} : { ca }),
      ...(serverName === undefined ? {} : { servername: serverName }),
    };
    const request = httpsRequest(url, options, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.byteLength;
        if (bytes > answerMaxBytes) request.destroy(new Error("the answer is too large"));
        else chunks.push(chunk);
      });
      response.on("end", () => {
        try {
          resolve(JSON.parse(Buffer.concat(chunks).toString()) as JsonObject);
        } catch (cause) {
          reject(internalError("the conversion webhook did not answer with JSON", cause));
        }
      });
    });
    request.once("timeout", () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    request.once("error", (cause) => reject(internalError(`conversion webhook ${url}: ${cause.message}`, cause)));
    request.end(body);
  });
}
