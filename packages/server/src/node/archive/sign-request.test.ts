import { expect, test } from "vitest";
import { emptySha256, signRequest } from "./sign-request.ts";

const credentials = {
  accessKeyId: "AKIDEXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
  region: "eu-central-1",
};
const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

test("signRequest: the example of the service's own documentation", () => {
  const own = {
    accessKeyId: "AKIAIOSFODNN7EXAMPLE",
    secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    region: "us-east-1",
  };
  const url = new URL("https://examplebucket.s3.amazonaws.com/test.txt");
  const request = { method: "GET", url, headers: { range: "bytes=0-9" }, bodySha256: emptySha256 };
  expect(signRequest(request, own, Date.UTC(2013, 4, 24))).toMatchObject({
    "x-amz-date": "20130524T000000Z",
    authorization:
      "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
  });
});

// The signatures below were computed with another implementation, from the specification.
test("signRequest: a query is encoded and sorted", () => {
  const url = new URL("http://127.0.0.1:7070/bucket");
  const query = { prefix: "p/index/", "list-type": "2", "continuation-token": "a/b=*" };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const { authorization } = signRequest(
    { method: "GET", url, headers: {}, bodySha256: emptySha256 },
    credentials,
    nowMs,
  );
  expect(authorization).toContain("Signature=893d5c73bb0fa45d198327ed015527a2e81023d6bd5e1e8cc6f98bb4dcb6d751");
});

test("signRequest: body, metadata and session token are signed", () => {
  const bodySha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
  const url = new URL("https://s3.example.com/bucket/p/parts/a/000000");
  const headers = { "content-length": "5", "x-amz-meta-sha256": bodySha256 };
  const signed = signRequest(
    { method: "PUT", url, headers, bodySha256 },
    { ...credentials, sessionToken: "token" },
    nowMs,
  );
  expect(signed).toMatchObject({ ...headers, host: "s3.example.com", "x-amz-security-token": "token" });
  expect(signed["authorization"]).toContain(
    "Signature=3bfbf5bef80a8c0a4ea108c39075f8e6dc90b9e86598bbba4c66f278ac3ed1e7",
  );
});
