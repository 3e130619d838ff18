import { createHash, createHmac } from "node:crypto";

/** Who signs, for which region of the store. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
  readonly region: string;
}

/** A request that is about to be sent. */
export interface UnsignedRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Of the body, in hexadecimal digits: the store refuses a body that has another. */
  readonly bodySha256: string;
}

/** The digest of an empty body. */
export const emptySha256 = createHash("sha256").digest("hex");

/** The headers of a request with its signature, version 4 of AWS, in the form that S3 asks for: the path is encoded once. */
export function signRequest(
  { method, url, headers, bodySha256 }: UnsignedRequest,
  { accessKeyId, secretAccessKey, sessionToken, region }: S3Credentials,
  nowMs: number,
): Record<string, string> {
  const stamp = new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, "");
  const day = stamp.slice(0, 8);
  const all: Record<string, string> = {
    ...headers,
    host: url.host,
    "x-amz-content-sha256": bodySha256,
    "x-amz-date": stamp,
    ...(sessionToken !== undefined && { "x-amz-security-token": sessionToken }),
  };
  const names = Object.keys(all)
    .map((name) => name.toLowerCase())
    .sort();
  const lines = names.map((name) => `${name}:${all[name]?.trim()}\n`);
  const query = [...url.searchParams].map(([name, value]) => `${encode(name)}=${encode(value)}`).sort();
  const canonical = [method, url.pathname, query.join("&"), lines.join(""), names.join(";"), bodySha256].join("\n");
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", stamp, scope, sha256(canonical)].join("\n");
  const key = [day, region, "s3", "aws4_request"].reduce<Buffer>(hmac, Buffer.from(`AWS4${secretAccessKey}`));
  const credential = `Credential=${accessKeyId}/${scope}`;
  const signature = hmac(key, text).toString("hex");
  const authorization = `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
  return { ...all, authorization };
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}

/** Everything but letters, digits and `-._~` as percent signs. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
