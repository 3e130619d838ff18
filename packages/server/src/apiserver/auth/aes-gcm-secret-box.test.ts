import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openSecretBox } from "./aes-gcm-secret-box.ts";

const plaintext = Buffer.from('{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}');
const context = "/registry/core/secrets/default/db";

let directory = "";
let path = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "box-"));
  path = join(directory, "encryption.keys");
});
afterEach(async () => {
  await rm(directory, { recursive: true });
});

test("SecretBox: a sealed value opens again, also after a restart, and shows nothing of the text", async () => {
  const sealed = (await openSecretBox(path)).encrypt(plaintext, context);
  expect(Buffer.from(sealed).includes("hunter") || Buffer.from(sealed).includes("aHVudGVyMg")).toBe(false);
  expect(Buffer.from((await openSecretBox(path)).decrypt(sealed, context))).toEqual(plaintext);
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

test("SecretBox: a value moved to another key is refused", async () => {
  const box = await openSecretBox(path);
  const sealed = box.encrypt(plaintext, context);
  expect(() => box.decrypt(sealed, "/registry/core/secrets/other/db")).toThrow();
});

test("SecretBox: every flipped byte behind the header is noticed", async () => {
  const box = await openSecretBox(path);
  const sealed = Buffer.from(box.encrypt(plaintext, context));
  for (let at = 35; at < sealed.length; at++) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    expect(() => box.decrypt(changed, context)).toThrow();
  }
});

test("SecretBox: rotation opens old values and calls them stale", async () => {
  const old = (await openSecretBox(path)).encrypt(plaintext, context);
  const box = await openSecretBox(path, { rotate: true });
  expect(Buffer.from(box.decrypt(old, context))).toEqual(plaintext);
  expect(box.isStale(old)).toBe(true);
  expect(box.isStale(box.encrypt(plaintext, context))).toBe(false);
});

test("SecretBox: a plain value passes through and is stale", async () => {
  const box = await openSecretBox(path);
  expect(box.decrypt(plaintext, context)).toBe(plaintext);
  expect(box.isStale(plaintext)).toBe(true);
});

test("SecretBox: a lost key is named in the error", async () => {
  const sealed = (await openSecretBox(path)).encrypt(plaintext, context);
  const other = await openSecretBox(join(directory, "other.keys"));
  expect(() => other.decrypt(sealed, context)).toThrow(/no encryption key [0-9a-f]{16} for \/registry/);
});
