import { expect, test } from "vitest";
import { type ArchiveFlags, parseArchiveFlags, parseS3Credentials } from "./archive-settings.ts";

const s3 = { archive: "s3://bucket/a/b/", archiveEndpoint: "https://s3.example.com", archiveCredentials: "/c" };

test("parseArchiveFlags: a directory, a bucket, or nothing", () => {
  expect(parseArchiveFlags({})).toBeUndefined();
  expect(parseArchiveFlags({ archive: "/srv/archive" })).toEqual({ kind: "directory", directory: "/srv/archive" });
  const settings = { kind: "s3", bucket: "bucket", endpoint: "https://s3.example.com/", credentialsFile: "/c" };
  expect(parseArchiveFlags(s3)).toEqual({ ...settings, prefix: "a/b/" });
  expect(parseArchiveFlags({ ...s3, archive: "s3://bucket" })).toEqual({ ...settings, prefix: "" });
  for (const host of ["127.0.0.1:7070", "localhost", "[::1]:1"])
    expect(parseArchiveFlags({ ...s3, archiveEndpoint: `http://${host}` })).toBeDefined();
});

const wrong: readonly (readonly [ArchiveFlags, string])[] = [
  [{ archive: "archive" }, "not an absolute path"],
  [{ archive: "gs://bucket" }, "neither a directory nor s3://"],
  [{ archive: "s3://B" }, "neither a directory nor s3://"],
  [{ archive: "/srv", archiveEndpoint: "https://s3.example.com" }, "--archive-endpoint is for s3://"],
  [{ archive: "/srv", archiveCredentials: "/c" }, "--archive-credentials is for s3://"],
  [{ archiveCredentials: "/c" }, "name one with --archive"],
  [{ archive: "s3://bucket", archiveEndpoint: "https://s3.example.com" }, "--archive-credentials"],
  [{ archive: "s3://bucket", archiveCredentials: "/c" }, "--archive-endpoint"],
  [{ ...s3, archiveEndpoint: "http://s3.example.com" }, "use https://"],
  [{ ...s3, archiveEndpoint: "http://127.0.0.1.example.com" }, "use https://"],
  [{ ...s3, archiveEndpoint: "https://user@s3.example.com" }, "--archive-endpoint"],
  [{ ...s3, archiveCredentials: "c" }, "absolute path"],
];

test.each(wrong)("parseArchiveFlags: %j is refused", (flags, message) => {
  expect(() => parseArchiveFlags(flags)).toThrow(message);
});

test("parseS3Credentials: the section default, or what there is", () => {
  const pair = (name: string): string => `aws_access_key_id = ${name}\naws_secret_access_key=${name}/+=\n`;
  expect(parseS3Credentials(pair("a"))).toEqual({ accessKeyId: "a", secretAccessKey: "a/+=", region: "us-east-1" });
  const sections = `# keys\n[other]\n${pair("b")}[default]\nregion = eu-1\naws_session_token = t\n${pair("c")}`;
  expect(parseS3Credentials(sections)).toEqual({
    accessKeyId: "c",
    secretAccessKey: "c/+=",
    region: "eu-1",
    sessionToken: "t",
  });
  expect(parseS3Credentials(`[other]\n${pair("b")}`)).toMatchObject({ accessKeyId: "b" });
  for (const text of ["", "[default]\naws_access_key_id = a\n"])
    expect(() => parseS3Credentials(text)).toThrow("has no aws_access_key_id and aws_secret_access_key");
});
