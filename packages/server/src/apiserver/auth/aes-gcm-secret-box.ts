import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { SecretBox } from "../storage/secret-box.ts";
import { writeSecret } from "./pki.ts";

/** Begins every sealed value; the key id and a colon follow. JSON never begins with it. */
const headerStart = Buffer.from("k8s:enc:aesgcm:v1:", "latin1");
const nonceBytes = 12;
const tagBytes = 16;

/** One key of 32 bytes; its id is written into every value it seals. */
export interface SecretKey {
  /** Sixteen hex digits. */
  readonly id: string;
  readonly bytes: Uint8Array;
}

/** AES-256-GCM with a random nonce per value; the store key is authenticated along. */
class AesGcmSecretBox implements SecretBox {
  readonly #keys: Map<string, SecretKey>;
  readonly #newest: SecretKey;

  /** Newest key first; the others only open what they sealed. */
  constructor(keys: readonly SecretKey[]) {
    const [newest] = keys;
    if (newest === undefined) throw new Error("a secret box needs at least one key");
    this.#newest = newest;
    this.#keys = new Map(keys.map((key) => [key.id, key]));
  }

  encrypt(plaintext: Uint8Array, context: string): Uint8Array {
    const header = headerOf(this.#newest);
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", this.#newest.bytes, nonce);
    cipher.setAAD(Buffer.concat([header, Buffer.from(context)]));
    return Buffer.concat([header, nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
  }

  decrypt(value: Uint8Array, context: string): Uint8Array {
    const id = keyIdOf(value);
    if (id === undefined) return value;
    const key = this.#keys.get(id);
    if (key === undefined)
      throw new Error(`no encryption key ${id} for ${context}; restore the key file it was written with`);
    const header = headerOf(key);
    const body = Buffer.from(value.buffer, value.byteOffset, value.byteLength).subarray(header.length);
    const decipher = createDecipheriv("aes-256-gcm", key.bytes, body.subarray(0, nonceBytes));
    decipher.setAAD(Buffer.concat([header, Buffer.from(context)]));
    decipher.setAuthTag(body.subarray(body.length - tagBytes));
    return Buffer.concat([decipher.update(body.subarray(nonceBytes, body.length - tagBytes)), decipher.final()]);
  }

  isStale(value: Uint8Array): boolean {
    return keyIdOf(value) !== this.#newest.id;
  }
}

function headerOf(key: SecretKey): Buffer {
  return Buffer.concat([headerStart, Buffer.from(`${key.id}:`, "latin1")]);
}

function keyIdOf(value: Uint8Array): string | undefined {
  const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (!bytes.subarray(0, headerStart.length).equals(headerStart)) return undefined;
  const end = bytes.indexOf(":", headerStart.length, "latin1");
  return end < 0 ? undefined : bytes.toString("latin1", headerStart.length, end);
}

/** Opens the key file (mode 0600), making it with one key when absent. `rotate` puts a fresh key in front. */
export async function openSecretBox(path: string, { rotate = false } = {}): Promise<AesGcmSecretBox> {
  const keys = await readKeys(path);
  if (keys.length === 0 || rotate) {
    keys.unshift({ id: randomBytes(8).toString("hex"), bytes: randomBytes(32) });
    await writeSecret(path, keys.map((key) => `${key.id} ${Buffer.from(key.bytes).toString("base64")}\n`).join(""));
  }
  return new AesGcmSecretBox(keys);
}

async function readKeys(path: string): Promise<SecretKey[]> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw error;
  });
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line, index) => parseKey(line, `${path}:${index + 1}`));
}

function parseKey(line: string, place: string): SecretKey {
  const [id = "", base64 = ""] = line.split(" ");
  const bytes = Buffer.from(base64, "base64");
  if (!/^[0-9a-f]{16}$/.test(id) || bytes.length !== 32) throw new Error(`${place}: not an encryption key`);
  return { id, bytes };
}
