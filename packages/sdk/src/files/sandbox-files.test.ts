import { expect, test } from "vitest";
import { ConnectClient } from "../plane/connect-client.ts";
import { answer, ScriptedPlane } from "../testing/scripted-plane.ts";
import { SandboxFiles } from "./sandbox-files.ts";

const odd = new Uint8Array([0x2f, 0x61, 0xff, 0x20, 0x62]);

function filesOn(plane: ScriptedPlane): SandboxFiles {
  return new SandboxFiles(plane, new ConnectClient(plane));
}

function plainAnswer(text: string): ReturnType<typeof answer> {
  return answer(200, text, { "content-type": "application/octet-stream" });
}

test("files: a name that is not UTF-8 travels byte by byte in URLs and as bytes in messages", async () => {
  const plane = new ScriptedPlane(plainAnswer("x"), answer(200, { file: {} }));
  const files = filesOn(plane);
  await files.read(odd);
  await files.stat(odd);
  expect(plane.requests[0]?.path).toBe("/v1/fs/%2Fa%FF%20b");
  expect(JSON.parse(plane.requests[1]?.body as string)).toEqual({ rawPath: "L2H/IGI=", noFollow: false });
});

test("files: bytes that are UTF-8 are the same name as their text", async () => {
  const plane = new ScriptedPlane(answer(200, { file: {} }));
  await filesOn(plane).stat(new TextEncoder().encode("/ü"));
  expect(JSON.parse(plane.requests[0]?.body as string)).toMatchObject({ path: "/ü" });
});

test("files: a listed name that is not UTF-8 comes with its bytes", async () => {
  const entry = { name: "a\ufffd b", path: "/a\ufffd b", rawPath: "L2H/IGI=" };
  const listed = filesOn(new ScriptedPlane(answer(200, { files: [entry] }))).list("/");
  const { value } = await listed.next();
  expect(value).toMatchObject({ name: "a\ufffd b", rawPath: Buffer.from(odd) });
});

test("files: a directory has no contents to read or replace", async () => {
  const listing = answer(200, { path: "/d", entries: [] });
  await expect(filesOn(new ScriptedPlane(listing)).read("/d")).rejects.toMatchObject({ code: "is-a-directory" });
  const refusal = answer(400, { code: "INVALID_ARGUMENT", message: "target path is a directory" });
  const directory = answer(200, { file: { type: "FILE_TYPE_DIRECTORY" } });
  const writing = filesOn(new ScriptedPlane(refusal, directory)).write("/d", "x");
  await expect(writing).rejects.toMatchObject({ code: "is-a-directory" });
});

test("files: something in the way is file-exists, and a full disk is no-space", async () => {
  const taken = new ScriptedPlane(answer(409, { code: "already_exists", message: "path exists already" }));
  await expect(filesOn(taken).mkdir("/d", { parents: false })).rejects.toMatchObject({ code: "file-exists" });
  const full = new ScriptedPlane(answer(429, { code: "resource_exhausted", message: "no space left on device" }));
  await expect(filesOn(full).copy("/a", "/b")).rejects.toMatchObject({ code: "no-space" });
});

test("files: a checksum names its algorithm", async () => {
  const plane = new ScriptedPlane(answer(200, { digest: "ab" }));
  expect(await filesOn(plane).checksum("/a", { algorithm: "md5" })).toBe("ab");
  expect(JSON.parse(plane.requests[0]?.body as string)).toEqual({ path: "/a", algorithm: "md5" });
});
