import { expect, test } from "vitest";
import type { JsonObject } from "../json/json.ts";
import { listAt, objectAt } from "../json/json.ts";
import { TestServer } from "../testing/test-server.ts";
import { conversionWebhook, type ReviewPost } from "./conversion-webhook.ts";

const schema = {
  openAPIV3Schema: {
    type: "object",
    properties: { spec: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
  },
};
const crd = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "gadgets.example.com" },
  spec: {
    group: "example.com",
    scope: "Cluster",
    names: { kind: "Gadget", plural: "gadgets" },
    conversion: {
      strategy: "Webhook",
      webhook: { conversionReviewVersions: ["v1"], clientConfig: { url: "https://127.0.0.1:1/convert" } },
    },
    versions: [
      { name: "v2", served: true, storage: true, schema },
      { name: "v1", served: true, storage: false, schema },
    ],
  },
};

/** Renames spec.size (v1) to spec.length (v2) and back. */
const renaming: ReviewPost = async (_endpoint, review) => {
  const request = objectAt(review, "request") ?? {};
  const [object] = listAt(request, "objects") as JsonObject[];
  const spec = objectAt(object, "spec") ?? {};
  const wanted = String(request["desiredAPIVersion"] as string);
  const renamed = wanted.endsWith("v2") ? { length: spec["size"] } : { size: spec["length"] };
  const converted = { ...object, apiVersion: wanted, spec: renamed };
  return {
    response: { uid: request["uid"], result: { status: "Success" }, convertedObjects: [converted as JsonObject] },
  };
};

test("conversion webhook: objects are stored in one version and read in both", async () => {
  await using server = new TestServer({ conversionWebhook: conversionWebhook(() => "review-1", renaming) });
  await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", { body: crd });
  const body = { apiVersion: "example.com/v1", kind: "Gadget", metadata: { name: "g" }, spec: { size: 3 } };
  expect((await server.call("POST", "/apis/example.com/v1/gadgets", { body })).body).toMatchObject({
    spec: { size: 3 },
  });
  expect((await server.call("GET", "/apis/example.com/v2/gadgets/g")).body).toMatchObject({
    apiVersion: "example.com/v2",
    spec: { length: 3 },
  });
});

test("conversion webhook: a failure is told to the caller and nothing is stored", async () => {
  const failing: ReviewPost = async (_endpoint, review) => ({
    response: { uid: objectAt(review, "request")?.["uid"], result: { status: "Failure", message: "no idea how" } },
  });
  await using server = new TestServer({ conversionWebhook: conversionWebhook(() => "review-2", failing) });
  await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", { body: crd });
  const body = { apiVersion: "example.com/v1", kind: "Gadget", metadata: { name: "g" }, spec: { size: 3 } };
  const refused = await server.call("POST", "/apis/example.com/v1/gadgets", { body });
  expect(refused.status).toBe(500);
  expect(refused.body["message"]).toContain("no idea how");
  expect((await server.call("GET", "/apis/example.com/v2/gadgets/g")).status).toBe(404);
});
