import type { JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { listAt, objectAt } from "../json/json.ts";
import { TestServer } from "../testing/test-server.ts";
import { conversionWebhook, type ReviewPost, type WebhookEndpoint } from "./conversion-webhook.ts";
import { serviceResolver } from "./resolve-service.ts";

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
  await using server = new TestServer({
    conversionWebhook: conversionWebhook({ uuid: () => "review-1", post: renaming }),
  });
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
  await using server = new TestServer({
    conversionWebhook: conversionWebhook({ uuid: () => "review-2", post: failing }),
  });
  await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", { body: crd });
  const body = { apiVersion: "example.com/v1", kind: "Gadget", metadata: { name: "g" }, spec: { size: 3 } };
  const refused = await server.call("POST", "/apis/example.com/v1/gadgets", { body });
  expect(refused.status).toBe(500);
  expect(refused.body["message"]).toContain("no idea how");
  expect((await server.call("GET", "/apis/example.com/v2/gadgets/g")).status).toBe(404);
});

const throughService = structuredClone<JsonObject>(crd);
Object.assign(objectAt(objectAt(throughService, "spec"), "conversion") ?? {}, {
  webhook: {
    conversionReviewVersions: ["v1"],
    clientConfig: { service: { namespace: "default", name: "converter", port: 443, path: "/convert" } },
  },
});

async function withConverter(): Promise<{ server: TestServer; asked: WebhookEndpoint[] }> {
  const asked: WebhookEndpoint[] = [];
  const post: ReviewPost = (endpoint, review) => {
    asked.push(endpoint);
    return renaming(endpoint, review);
  };
  const webhook = conversionWebhook({
    uuid: () => "review-3",
    post,
    resolve: (service) => serviceResolver(server.api.parts)(service),
  });
  const server: TestServer = new TestServer({ conversionWebhook: webhook });
  await server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", { body: throughService });
  return { server, asked };
}

const gadget = { apiVersion: "example.com/v1", kind: "Gadget", metadata: { name: "g" }, spec: { size: 3 } };

test("conversion webhook: a service is asked at a ready endpoint under its own name", async () => {
  const { server, asked } = await withConverter();
  await using _server = server;
  const metadata = { name: "converter", labels: { "kubernetes.io/service-name": "converter" } };
  const port = { name: "https", port: 443, targetPort: 9443 };
  const service = { apiVersion: "v1", kind: "Service", metadata, spec: { ports: [port] } };
  await server.call("POST", "/api/v1/namespaces/default/services", { body: service });
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata,
    addressType: "IPv4",
    endpoints: [
      { addresses: ["10.200.0.1"], conditions: { ready: false } },
      { addresses: ["10.200.0.2"], conditions: { ready: true } },
    ],
    ports: [{ name: "https", port: 9443 }],
  };
  await server.call("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", { body: slice });
  expect((await server.call("POST", "/apis/example.com/v1/gadgets", { body: gadget })).status).toBe(201);
  expect(asked[0]).toMatchObject({ url: "https://10.200.0.2:9443/convert", serverName: "converter.default.svc" });
});

test("conversion webhook: a service without a ready endpoint is told by name", async () => {
  const { server } = await withConverter();
  await using _server = server;
  const refused = await server.call("POST", "/apis/example.com/v1/gadgets", { body: gadget });
  expect(refused.status).toBe(500);
  expect(refused.body["message"]).toContain("service default/converter has no ready endpoint for port 443");
});
