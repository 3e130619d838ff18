import { request as httpsRequest } from "node:https";
import { internalError } from "@agent-sandbox/api";
import { isJsonObject, type JsonObject, listAt, objectAt, stringAt } from "../json/json.ts";
import { type ApiObject, asJson, asObject, groupVersion } from "../object.ts";
import type { ConversionWebhook } from "./crd-registry.ts";

/** Sends a review to a webhook and reads its answer. */
export type ReviewPost = (
  endpoint: { url: string; caBundle: string | undefined },
  review: JsonObject,
) => Promise<JsonObject>;

/** Bytes of a webhook's answer, at most. */
const answerMaxBytes = 16 * 1024 * 1024;

/** A webhook that has not answered by then has failed; Kubernetes' figure. */
const timeoutMs = 30_000;

/** Converts objects of users' CRDs by asking the webhook at the URL their CRD names. */
export function conversionWebhook(uuid: () => string, post: ReviewPost = postReview): ConversionWebhook {
  return async (crd, object, toVersion) => {
    const spec = objectAt(asJson(crd), "spec");
    const client = objectAt(objectAt(objectAt(spec, "conversion"), "webhook"), "clientConfig");
    const url = stringAt(client, "url");
    const failed = (why: string) =>
      internalError(`conversion webhook for ${object.apiVersion}, Kind=${object.kind} failed: ${why}`);
    // A Service has no address that this process may dial; only a URL can be asked.
    if (url === undefined) throw failed("clientConfig has no url, and services are not dialled");
    const uid = uuid();
    const desiredAPIVersion = groupVersion({ group: stringAt(spec, "group") ?? "", version: toVersion });
    const review: JsonObject = {
      kind: "ConversionReview",
      apiVersion: "apiextensions.k8s.io/v1",
      request: { uid, desiredAPIVersion, objects: [asJson(object)] },
    };
    const answer = objectAt(await post({ url, caBundle: stringAt(client, "caBundle") }, review), "response");
    const result = objectAt(answer, "result");
    if (stringAt(answer, "uid") !== uid) throw failed("the answer is about another request");
    if (stringAt(result, "status") !== "Success") throw failed(stringAt(result, "message") ?? "no reason given");
    return checkConverted(object, listAt(answer, "convertedObjects")[0], { desiredAPIVersion, failed });
  };
}

/** A webhook may change anything but who the object is. */
function checkConverted(
  object: ApiObject,
  converted: unknown,
  { desiredAPIVersion, failed }: { desiredAPIVersion: string; failed: (why: string) => Error },
): ApiObject {
  if (!isJsonObject(converted)) throw failed("the answer holds no object");
  const result = asObject(converted);
  if (result.apiVersion !== desiredAPIVersion || result.kind !== object.kind)
    throw failed("the answer is of another kind or version");
  const { labels, annotations } = objectAt(converted, "metadata") as ApiObject["metadata"];
  const metadata = { ...object.metadata };
  if (labels !== undefined) metadata.labels = labels;
  if (annotations !== undefined) metadata.annotations = annotations;
  return { ...result, metadata };
}

async function postReview(
  { url, caBundle }: { url: string; caBundle: string | undefined },
  review: JsonObject,
): Promise<JsonObject> {
  const body = JSON.stringify(review);
  const ca = caBundle === undefined ? undefined : Buffer.from(caBundle, "base64").toString();
  return new Promise((resolve, reject) => {
    const options = {
      method: "POST",
      timeout: timeoutMs,
      headers: { "content-type": "application/json" },
      ...(ca === undefined ? {} : { ca }),
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
